"""Segments: pairs of files with records and acks; the pool of spare pairs; idle segments."""
