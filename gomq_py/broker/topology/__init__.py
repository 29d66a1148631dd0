"""Keeps a vhost's exchanges, queues and bindings: makes them durable, exports and imports them."""
