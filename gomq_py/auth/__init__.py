"""Authentication and rights: users, passwords, permissions."""
