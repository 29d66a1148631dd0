"""Loads: how many of something there are in a minute, as Mosquitto's ``$SYS/broker/load/...`` tell.

Beside broker_topics. A moving average for each of three times, in which what happened weighs less the longer
ago it was; it begins when somebody first asks, with what happened since then. Values.
"""
import math

MINUTES = (1, 5, 15)
# Shorter times say little: the averages stay as they are.
SHORTEST_S = 1


class Loads:
    """Of counters that do not fall, or a little: what is gone may have been counted twice."""

    def __init__(self):
        self._last_s = 0.0
        self._counts = {}
        self._averages = {}  # {(name, minutes): in a minute}

    def updated(self, counts, now_s):
        """{"name/Nmin": in a minute}, now that the counters are ``counts``, by name; none at first.
        ``now_s``: of a clock that never goes back.
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
