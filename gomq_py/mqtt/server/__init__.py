"""The MQTT server: reads and writes packets at sockets, and calls the broker's operations."""
