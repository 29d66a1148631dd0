"""A broker for other people's test suites: a pytest plugin, a killable child process, and switches that make
it misbehave.
"""
