"""Pairs of segment files: what is in one, where its files come from, and when they are idle."""
