"""gomq-py-perf, the load tool: compiled batches out, compiled walks in,
so that the broker is what is measured.

A leaf of the tree that nobody imports. Workers are forked processes that share one region of counters with
their parent; the parent only reads it.
"""
