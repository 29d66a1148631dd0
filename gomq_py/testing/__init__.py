"""Gives other projects a broker for their tests: a pytest plugin that starts it, and switches for faults."""
