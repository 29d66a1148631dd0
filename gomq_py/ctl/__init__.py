"""``gomq-py-ctl``: the operator's command line.

Sends requests to the management API of a broker, or reads the data folder of a stopped broker. No other
package imports this one.
"""
