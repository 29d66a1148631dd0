"""Blocking AMQP and MQTT clients, standard library only."""
