"""The log, counters, and measurements of the process and the system."""
