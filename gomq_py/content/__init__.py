"""What a message says of itself, and what definitions hold, in octets: AMQP's field tables and properties, on
the wire and on disk.

No I/O.
"""
