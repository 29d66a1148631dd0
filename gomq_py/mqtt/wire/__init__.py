"""MQTT octets to packets and properties, and back. No I/O, no gevent."""
