"""A broker for the tests of other projects, which can also misbehave, and a pytest plugin."""
