"""gomq-py-perf, the load tool: writes compiled batches and parses compiled, so that the broker is what is
measured.

Imported by nothing else. Workers are forked processes that share a region of counters with their parent,
which only reads it.
"""
