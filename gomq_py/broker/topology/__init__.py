"""A vhost's exchanges, queues and bindings: keeps them, makes them durable, exports and imports them."""
