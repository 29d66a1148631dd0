"""Keeps a vhost's exchanges, queues and bindings, makes them durable, and exports and imports them."""
