"""Core of a cluster: who leads, who is in sync, which promises are kept; without I/O, clock or greenlets."""
