"""The bytes of segments, records and acks. A leaf: no gevent."""
