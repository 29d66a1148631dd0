"""Message content as octets: AMQP field tables and basic properties, on the wire and on disk. No I/O."""
