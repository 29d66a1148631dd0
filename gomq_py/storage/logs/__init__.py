"""Framed logs of definitions and users, with a record for each change."""
