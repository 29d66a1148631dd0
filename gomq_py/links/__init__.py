"""Links: move messages from one broker to another, or to a web server, for shovels and federation."""
