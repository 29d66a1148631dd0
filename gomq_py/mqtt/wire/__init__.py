"""The MQTT codec: turns bytes into packets and properties, and back. No I/O, no gevent."""
