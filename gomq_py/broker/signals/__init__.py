"""Reports what happens in the broker: events, traces, its log as messages, alarms, totals."""
