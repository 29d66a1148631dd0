"""The MQTT door: sockets and packets on one side, the broker's verbs on the other."""
