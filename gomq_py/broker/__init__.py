"""The broker's model: vhosts, exchanges, queues and definitions. Knows no sockets and no protocol frames."""
