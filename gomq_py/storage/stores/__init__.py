"""Stores: the messages of a queue, of a queue with priorities, or of a stream, and their recovery."""
