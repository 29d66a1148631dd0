"""What a queue calls: stores of messages, of priorities and of streams, and their recovery."""
