"""``gomq-py-ctl``: the operator's command line.

Speaks the management API, or reads a data folder that no broker holds. No other room imports this one.
"""
