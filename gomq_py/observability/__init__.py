"""Logs, counters, and figures of the process and the system."""
