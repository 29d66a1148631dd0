"""Reports of what happens in the broker: events, traces, log messages, alarms, totals."""
