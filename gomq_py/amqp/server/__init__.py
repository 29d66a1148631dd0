"""One AMQP client connection: state machines and greenlets."""
