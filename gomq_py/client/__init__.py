"""Blocking AMQP 0-9-1 and MQTT clients, which need only the standard library."""
