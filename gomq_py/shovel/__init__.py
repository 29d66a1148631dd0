"""Shovels: move messages from one broker to another, or to a web server, until they are stopped."""
