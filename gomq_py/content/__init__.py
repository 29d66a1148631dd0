"""Reads and writes the bytes of message content: AMQP field tables and basic properties. No I/O."""
