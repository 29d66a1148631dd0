"""Shovels: move messages from one broker to another until they are stopped."""
