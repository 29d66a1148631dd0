"""Reports what happens in the broker: events, traces, the log as messages, alarms, and totals of deleted
entities.
"""
