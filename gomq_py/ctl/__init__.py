"""``gomq-py-ctl``: the operator's command line.

Speaks the management API, or reads a data folder that no broker holds. Entry; no other room imports it.
"""
