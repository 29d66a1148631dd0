"""Reports what happens in the broker: events, traces, the log as messages, alarms, totals."""
