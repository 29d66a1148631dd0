"""Shovels: what moves messages from one broker to another until somebody stops it."""
