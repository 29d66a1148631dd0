"""Hub: has what all parts of a broker share in one event loop: turns, jobs, timers, budgets and threads.

Below storage, net and broker.
"""
