"""Pairs of segment files: their content, the pool that they come from, and idle ones."""
