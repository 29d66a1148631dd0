"""gomq-py-perf, the load generator for brokers. It writes many messages at once and parses in compiled code,
so that the broker and not the generator is the limit.

No other package imports this one. Workers are forked processes. They write counters into memory that they
share with their parent; the parent only reads the counters.
"""
