"""gomq-py-perf, the load tool: writes batches and parses in compiled code, so that it measures the broker.

No other room imports this one. Workers are forked processes. They write counters into memory that they share
with their parent; the parent only reads the counters.
"""
