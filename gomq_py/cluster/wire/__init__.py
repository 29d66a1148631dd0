"""Wire: frames, login messages and file events between a leader and its followers. No I/O."""
