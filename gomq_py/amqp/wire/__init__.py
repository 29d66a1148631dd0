"""Translates AMQP 0-9-1 octets to frames and methods, and back. No I/O, no gevent."""
