"""Gives other projects a broker for their tests, which can also misbehave, and a pytest plugin that starts
this broker.
"""
