"""Rates: how fast a counter moved since it was last looked at. Kept only for what somebody looks at, and dropped with the thing itself.

A dashboard asks every five seconds; so a rate is the change over the last five seconds or so, and nothing is measured when nobody asks.
"""
import time
from weakref import WeakKeyDictionary

# Looks closer together than this share one rate, so that two dashboards do not chop each other's windows up.
LEAST_WINDOW_S = 1.0
# After a pause as long as this a rate would be the mean of what nobody cares for any more.
LONGEST_WINDOW_S = 60.0


class Rates:
    """``of`` answers the rate per second of one counter of one object and remembers the look."""

    def __init__(self, now_s=time.monotonic):
        self._now_s = now_s
        self._looks = WeakKeyDictionary()
        self._unweak = {}

    def of(self, thing, name, value):
        """Change per second of the counter ``name`` of ``thing`` since the look before; 0.0 at the first."""
        looks = self._of_thing(thing)
        now = self._now_s()
        look = looks.get(name)
        if look is None:
            looks[name] = (now, value, 0.0)
            return 0.0
        since, before, rate = look
        if now - since < LEAST_WINDOW_S:
            return rate
        rate = (value - before) / (now - since) if now - since <= LONGEST_WINDOW_S else 0.0
        looks[name] = (now, value, rate)
        return rate

    def _of_thing(self, thing):
        try:
            looks = self._looks.get(thing)
            if looks is None:
                looks = self._looks[thing] = {}
        except TypeError:  # compiled objects without weak references: by identity, checked against the name
            key = (type(thing).__name__, getattr(thing, "vhost", ""), getattr(thing, "name", ""))
            looks = self._unweak.setdefault(key, {})
        return looks

    def forget(self, names):
        """Drop what is kept of objects that are gone: keep only those whose (vhost, name) is in ``names``."""
        for key in [key for key in self._unweak if key[1:] not in names]:
            del self._unweak[key]
