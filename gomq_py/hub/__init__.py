"""Hub: the parts of a broker that belong to its event loop and that all connections share: scheduling,
timers, memory budgets, connection limits and threads.

The packages storage, net and broker import this package, and it imports none of them.
"""
