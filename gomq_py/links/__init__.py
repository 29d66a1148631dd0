"""What moves messages between brokers."""
