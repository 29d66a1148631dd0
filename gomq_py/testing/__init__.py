"""A broker for other projects' tests: a pytest plugin, a child process, and switches for faults."""
