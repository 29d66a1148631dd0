"""Who may do what: users, passwords, permissions."""
