"""A broker for other projects' tests: a pytest plugin, a killable child process, and switches that make it
misbehave.
"""
