"""Format: the bytes of segments, records, acks and logs. Does no I/O."""
