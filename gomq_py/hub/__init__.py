"""Hub: what one event loop has for all who use it: turns, jobs, timers, budgets, work in threads.

Below storage, net and broker.
"""
