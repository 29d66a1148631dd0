"""Messages and definitions on disk: segments, acks, recovery, group commit."""
