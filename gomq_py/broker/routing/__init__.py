"""Routing: finds the destinations of messages, and remembers them as routes."""
