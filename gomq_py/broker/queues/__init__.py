"""Queues, their consumers and their schedule."""
