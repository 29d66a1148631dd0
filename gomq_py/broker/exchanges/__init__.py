"""One matching rule per file."""
