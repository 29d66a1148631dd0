"""Logs: the framed logs of definitions and users, with a record for each change."""
