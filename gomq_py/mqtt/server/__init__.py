"""The MQTT door: reads and writes packets at sockets, and calls the broker's verbs."""
