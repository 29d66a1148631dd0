"""Speaks AMQP 0-9-1: the wire codec and the server."""
