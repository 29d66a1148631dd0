"""The types of exchanges, each with its matching rule in a file of its own."""
