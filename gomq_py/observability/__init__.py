"""Observability: logs, counters, and figures of the process and the system."""
