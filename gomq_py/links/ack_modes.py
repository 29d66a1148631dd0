"""Ack modes: when a link acknowledges a message to its source, by RabbitMQ's names.

A leaf, which definitions read without the client that links bring.
"""

# After the target has confirmed it; once it has been written to the target; the source asks for no acks.
ON_CONFIRM, ON_PUBLISH, NO_ACK = ACK_MODES = ("on-confirm", "on-publish", "no-ack")
