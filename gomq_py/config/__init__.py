"""Settings: each option once."""
