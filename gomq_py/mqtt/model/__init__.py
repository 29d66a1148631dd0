"""MQTT's state in the broker: subscriptions and sessions. Above broker, below the door; no sockets."""
