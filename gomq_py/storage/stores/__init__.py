"""The stores that queues use: of messages, of priorities and of streams, and their recovery."""
