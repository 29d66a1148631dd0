"""Routing: finds the destinations of messages, and caches them as routes."""
