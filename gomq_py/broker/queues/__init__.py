"""Holds queues and streams, with their consumers, limits and timers."""
