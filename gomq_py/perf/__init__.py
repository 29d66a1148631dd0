"""gomq-py-perf, the load generator for brokers.

It writes many messages at once and parses in compiled code, so that the broker reaches its limit before the
generator does. Worker processes are forked; they write counters into memory shared with their parent. No
other package imports this one.
"""
