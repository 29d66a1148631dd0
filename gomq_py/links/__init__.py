"""Links: message transfer between brokers, for shovels and federation."""
