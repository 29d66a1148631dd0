"""The bytes of segments, records, acks and logs. Uses only the standard library, without I/O."""
