"""The way of a message from an exchange to where it is put, and what is remembered of it."""
