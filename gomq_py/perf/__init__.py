"""gomq-py-perf, the load generator for brokers. It writes many messages at once and parses in compiled code,
so that the broker and not the generator is the limit.

No other package imports this one. Workers are forked processes, which write counters into memory shared with
their parent.
"""
