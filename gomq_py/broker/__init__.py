"""Holds the broker's model: vhosts, exchanges, queues, definitions. Knows no sockets and no frames."""
