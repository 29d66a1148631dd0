"""Stores: keep the messages of queues, priority queues and streams in files, also over a restart."""
