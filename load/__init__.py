"""Load on brokers: the benchmark behind docs/performance.md and what it is made of.

Not part of the installed package.
"""
