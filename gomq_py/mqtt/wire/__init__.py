"""Turns MQTT octets into packets and properties, and back. No I/O, no gevent."""
