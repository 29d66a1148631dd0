"""Authentication and rights: keeps users, checks passwords and permissions."""
