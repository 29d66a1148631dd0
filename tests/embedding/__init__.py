"""The broker inside other programs: threads, greenlets, patched and unpatched."""
