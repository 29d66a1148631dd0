"""Core of a cluster: who leads, who is in sync, which confirms may be sent; no I/O, clock or greenlets."""
