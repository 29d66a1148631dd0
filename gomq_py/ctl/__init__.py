"""``gomq-py-ctl``: the operator's command line.

Sends requests to the management API, or reads the data folder of a stopped broker. No other package imports
this one.
"""
