"""Reads and writes message content as octets: AMQP field tables and basic properties. No I/O."""
