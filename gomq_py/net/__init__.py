"""Network: listeners, sockets and output buffers."""
