"""What the broker tells of itself: events, traces, its log as messages, alarms, sums of what is gone."""
