"""Cluster core: elections, the in-sync set, and confirms that may be sent; no I/O, clock or greenlets."""
