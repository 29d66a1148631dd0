"""Hub: what all parts of a broker share in one event loop: turns, jobs, timers, budgets, work in threads.

Below storage, net and broker.
"""
