"""For the tests of other projects: a broker that can be made to misbehave, and a pytest plugin."""
