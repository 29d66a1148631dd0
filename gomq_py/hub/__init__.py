"""Hub: the event loop's shared parts: scheduling, timers, memory budgets, connection limits and threads. The
packages storage, net and broker import this package; it imports none of them.
"""
