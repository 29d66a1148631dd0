"""The model: vhosts, exchanges, queues, definitions. No sockets, no frames."""
