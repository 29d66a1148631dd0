"""gomq-py-perf, the load tool. It writes many messages at once and parses in compiled code, so that the
broker and not the tool is the limit.

No other room imports this one. Workers are forked processes. They write counters into memory that they share
with their parent; the parent only reads the counters.
"""
