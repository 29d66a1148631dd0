"""Cluster core: elections, the in-sync set, and which confirms may be sent. No I/O, clocks or greenlets."""
