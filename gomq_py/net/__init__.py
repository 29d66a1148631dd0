"""Listeners, sockets and output buffers."""
