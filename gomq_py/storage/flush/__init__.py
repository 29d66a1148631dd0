"""Flushes: group commit, its threads, and durability, which says when changes are safe."""
