"""Storage: keeps messages and definitions on disk: segments, acks, recovery, group commit."""
