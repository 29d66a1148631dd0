"""The AMQP 0-9-1 codec: translates bytes to frames and methods, and back. No I/O, no gevent."""
