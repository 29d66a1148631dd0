"""The options of the broker, and the sources of their values."""
