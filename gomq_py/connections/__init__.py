"""The parts of client connections and logins that all protocols share."""
