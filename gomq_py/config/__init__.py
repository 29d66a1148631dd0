"""Configuration: knows every option of the broker, and the sources of its value."""
