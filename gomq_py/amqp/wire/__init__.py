"""AMQP 0-9-1 octets to frames, methods, tables and properties. No I/O, no gevent."""
