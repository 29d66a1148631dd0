"""Framed logs: definitions and users, as a record for each change."""
