"""Moves messages between brokers, for shovels and federation."""
