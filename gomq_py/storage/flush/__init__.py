"""Flushes: group commit, its threads, and durability, which reports that changes are safe."""
