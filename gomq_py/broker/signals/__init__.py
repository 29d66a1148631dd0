"""Signals of the broker: events, traces, its log as messages, alarms, totals of deleted things."""
