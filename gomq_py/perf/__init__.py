"""gomq-py-perf, the load tool: writes batches and parses in compiled code, so that it measures the broker.

Imported by nothing else. Workers are forked processes that share a region of counters with their parent,
which only reads it.
"""
