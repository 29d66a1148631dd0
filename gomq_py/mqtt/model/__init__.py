"""MQTT's state in the broker: subscriptions and sessions. Above broker, below mqtt.server; no sockets."""
