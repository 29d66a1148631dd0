"""Hub: everything that the parts of a broker share in one event loop: turns, jobs, timers, budgets and
threads.

The packages storage, net and broker import this package, and it imports none of them.
"""
