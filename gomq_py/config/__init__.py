"""Settings: every option, and the sources of its value."""
