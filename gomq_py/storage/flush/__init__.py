"""What marked files wait for: group commit, its threads, and the one place that says when all is safe."""
