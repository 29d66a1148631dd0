"""A broker for the tests of other projects, which can be made to misbehave, and a pytest plugin."""
