"""Loads: events per minute, as Mosquitto's ``$SYS/broker/load/...`` reports them.

Exponential moving averages over three periods; they begin at the first call. Values.
"""
import math

MINUTES = (1, 5, 15)
# Shorter intervals say little: the averages stay unchanged.
SHORTEST_S = 1


class Loads:
    """Averages of counters that may fall only slightly (a closed client's may have been added twice)."""

    def __init__(self):
        self._last_s = 0.0
        self._counts = {}
        self._averages = {}  # {(name, minutes): in a minute}

    def updated(self, counts, now_s):
        """{"name/Nmin": per minute}, for counters that are now ``counts`` (by name); {} at first. ``now_s``:
        a clock that never goes back.
        """
        if not self._counts:
            self._counts, self._last_s = counts, now_s
        elapsed_s = now_s - self._last_s
        if elapsed_s >= SHORTEST_S:
            for name, count in counts.items():
                self._update(name, max(0, count - self._counts[name]) * 60 / elapsed_s, elapsed_s)
            self._counts, self._last_s = counts, now_s
        return {f"{name}/{minutes}min": value for (name, minutes), value in self._averages.items()}

    def _update(self, name, now, elapsed_s):
        for minutes in MINUTES:
            before = self._averages.get((name, minutes), now)
            kept = math.exp(-elapsed_s / (60 * minutes))
            self._averages[name, minutes] = now + (before - now) * kept
