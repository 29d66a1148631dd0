"""Serves AMQP 0-9-1 clients: their connections, channels and consumers."""
