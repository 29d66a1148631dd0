"""What the connection of every client has, and its login, whichever door it comes through."""
