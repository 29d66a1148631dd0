"""MQTT's state in the broker: subscriptions and sessions. Used by mqtt.server; uses broker. No sockets."""
