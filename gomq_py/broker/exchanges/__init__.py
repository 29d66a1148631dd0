"""Holds the types of exchanges; each type has its matching rule in a file of its own."""
