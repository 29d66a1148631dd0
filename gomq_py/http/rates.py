"""Measures the change of counters per second between requests, and keeps their history for curves.

A *thing* is an entity with counters. A *look* is a request that reads the counters. A rate is the change
between two looks: without looks nothing is measured.

    look(group, thing, windows) -> View     windows: the query's ``lengths_age lengths_incr msg_rates_age
                                            ...``, in seconds. With windows, the View also has samples

A history begins with the first request for it and ends after a while without requests. One greenlet samples
all histories. In a ``long`` group a history also covers a whole day, by samples further apart. These stay for
a day after the last look. LOOKS_MAX and HISTORIES_MAX limit the looks and the histories.

``record`` samples a history without any look, and is not limited: see http.recorder.
"""
import time
import weakref
from array import array

import gevent
from gevent.event import Event

from gomq_py.hub.turns import paced

# Looks closer together than this share one rate, so that two dashboards do not split each other's windows.
LEAST_WINDOW_S = 1.0
# After a pause of this length a rate would be an outdated mean: it is dropped.
LONGEST_WINDOW_S = 60.0
# Things with a rate: some 600 octets each. Above the bound a new thing has the rate 0 until others are
# dropped: if it replaced one, a longer list would find none of its things again and replace them all each
# time.
LOOKS_MAX = 100_000
# Looks dropped between two checks of the clock: less than a microsecond each; 100 000 at once take 50 ms.
FORGOTTEN_LOOK = 100
# Things with a history: a queue's 120 samples are 13 KiB, so 6 MiB at most.
HISTORIES_MAX = 500
# A day's history: interval, length (720 samples: 90 KiB for a broker's sums), and most things with one.
LONG_INTERVAL_S, LONG_S, LONG_MAX = 120.0, 86400.0, 20
# Recorded histories: interval, and length of the page's first curves, ten minutes, with one sample more.
RECORD_INTERVAL_S, RECORD_S = 30.0, 630.0
LENGTHS, MESSAGES, DATA, NODE = "lengths", "msg_rates", "data_rates", "node_stats"
CATEGORIES = (LENGTHS, MESSAGES, DATA, NODE)


class Group:
    """The counters of one kind of entity, such as queues.

    ``categories`` maps a counter's name to its category, one of CATEGORIES. A query names the categories
    whose samples it wants. ``read(entity)`` returns the counters' values, in the order of ``categories``.
    If ``long``, histories may cover a day.
    """

    __slots__ = ("names", "categories", "read", "long")

    def __init__(self, categories, read, long=False):
        self.long = long
        self.names = tuple(categories)
        self.categories = tuple(categories.values())
        self.read = read


class View:
    """The values of one entity's counters, and their rates and samples in RabbitMQ's form (``*_details``)."""

    __slots__ = ("group", "values", "_rates", "_history", "_windows")

    def __init__(self, group, values, rates, history, windows):
        self.group = group
        self.values = values
        self._rates = rates
        self._history = history
        self._windows = windows

    def put(self, shape, first=0, last=None):
        """Put counters with indexes ``first`` to ``last - 1``, with details, into ``shape``; return it."""
        names = self.group.names
        for index in range(first, len(names) if last is None else last):
            name = names[index]
            shape[name] = self.values[index]
            shape[f"{name}_details"] = self.details(index)
        return shape

    def details(self, index):
        """The ``*_details`` of the counter at ``index``: a dict with its rate and, if requested, samples."""
        details = {"rate": self._rates[index]}
        if self._history is not None:
            window = self._windows.get(self.group.categories[index])
            if window is not None:
                details.update(self._history.curve(index, *window))
        return details


class Rates:
    """Keeps rates and histories of one broker: ``samples_max`` samples at most, ``interval_s`` apart."""

    def __init__(
        self, interval_s=5.0, samples_max=120, now_s=time.monotonic, unix_s=time.time, spawn=gevent.spawn
    ):
        self._interval_s = interval_s
        self._samples_max = samples_max
        self._now_s = now_s
        self._unix_s = unix_s
        self._spawn = spawn
        self._looks = {}  # {Group: _Looks}
        self._is_forgotten_at = now_s() + LONGEST_WINDOW_S
        self._histories = {}
        self._recorded = {}  # histories, some of which are looked at, too
        self._keeper = None
        self._begun = Event()  # a history, or a look at one, began while the keeper sleeps long

    def look(self, group, thing, windows=None, begins=True):
        """Read an entity's counters, and return a View with rates since the last look. May switch greenlets.

        With ``begins`` false no history begins; an entity without a history has its current values as the
        only sample.
        """
        values = group.read(thing)
        history = None
        if windows:
            key = (group, _reference(thing))
            history = self._history(key, values, windows) if begins else self._history_as_it_is(key, values)
        look = self._look(group, thing, values)
        rates = array("d", bytes(8 * len(values))) if look is None else look.rates
        return View(group, values, rates, history, windows)

    def record(self, group, thing, values):
        """Add a sample to an entity's history, which then lasts until ``end_record()``."""
        key = (group, _reference(thing))
        history = self._recorded.get(key)
        if history is None:
            history = self._histories.get(key) or self._new_history(group)
            self._recorded[key] = history
        history.record(self._unix_s(), values)

    def end_record(self, group, thing):
        """Stop recording an entity. Its history stays only while clients look at it."""
        self._recorded.pop((group, _reference(thing)), None)

    def _new_history(self, group):
        is_long = group.long and LONG_MAX > sum(
            one.is_long for one in {*self._histories.values(), *self._recorded.values()})
        return History(len(group.names), self._samples_max, is_long)

    def forget(self):
        """Drop all rates and histories. The sampling greenlet ends after its next round."""
        for looks in self._looks.values():
            looks.clear()  # each look refers to its holder
        self._looks.clear()
        self._histories.clear()
        self._recorded.clear()

    def close(self):
        """Stop the sampling greenlet, which refers to the broker. Drop everything. May switch greenlets."""
        self.forget()
        if self._keeper is not None:
            gevent.kill(self._keeper)
            self._keeper = None

    # rates

    def _look(self, group, thing, values):
        now = self._now_s()
        looks = self._looks.get(group)
        if looks is None:
            looks = self._looks[group] = _Looks()
        look = looks.find(thing)
        if look is None:
            if self._looks_count() >= LOOKS_MAX:
                return None
            look = looks.add(thing, now, values)
        # Changed in place: ten thousand new objects per list would make the collector scan the whole broker,
        # for 60 ms.
        elapsed = now - look.at
        if elapsed > LONGEST_WINDOW_S:
            look.take(now, values, [0.0] * len(values))
        elif elapsed >= LEAST_WINDOW_S:
            look.take(now, values, [(value - before) / elapsed for value, before in zip(values, look.values)])
        self._keep()
        return look

    def _looks_count(self):
        return sum(len(looks) for looks in self._looks.values())

    # histories

    def _history(self, key, values, windows):
        history = self._histories.pop(key, None) or self._recorded.get(key)
        if history is None:
            history = self._new_history(key[0])
            history.add(self._unix_s(), values)
            self._begun.set()
        elif history.wanted_until < self._now_s():
            history.go_on(self._unix_s(), values)
            self._begun.set()
        history.wanted_until = self._now_s() + max(
            LONGEST_WINDOW_S, *(age_s for age_s, _ in windows.values())
        )
        history.kept_until = history.wanted_until + (LONG_S if history.is_long else 0)
        self._histories[key] = history
        if len(self._histories) > HISTORIES_MAX:
            self._histories.pop(next(iter(self._histories))).pause()
        self._keep()
        return history

    def _history_as_it_is(self, key, values):
        history = self._histories.get(key) or self._recorded.get(key)
        if history is None:
            history = History(len(values), 1)
            history.add(self._unix_s(), values)
        return history

    def _keep(self):
        if self._keeper is None:
            self._keeper = self._spawn(self._keep_while_wanted)
            self._keeper.name = "rates"

    def _keep_while_wanted(self):
        while self._looks_count() or self._histories:
            self._begun.clear()
            if self._is_something_due():
                gevent.sleep(self._interval_s)
            elif self._begun.wait(LONGEST_WINDOW_S):
                continue  # otherwise the second sample of a new look would be a minute late
            self.sample()
        self._keeper = None

    def _is_something_due(self):
        now = self._now_s()
        return any(
            history.wanted_until >= now or history.kept_until < now for history in self._histories.values())

    def sample(self):
        """Drop unused histories, and add a sample to those that are due. May switch greenlets."""
        self._forget()
        for (group, reference), history in paced(list(self._histories.items())):
            thing = reference()
            if thing is None:
                self._histories.pop((group, reference), None)
            elif history.wanted_until >= self._now_s():
                history.add(self._unix_s(), group.read(thing))
            elif history.is_long_due(self._unix_s()):
                history.add_long(self._unix_s(), group.read(thing))

    def _forget(self):
        """Drop unused histories and, once per LONGEST_WINDOW_S, unused rates. May switch greenlets."""
        now = self._now_s()
        if now >= self._is_forgotten_at:
            self._is_forgotten_at = now + LONGEST_WINDOW_S
            for looks in list(self._looks.values()):
                for reference in paced(list(looks), FORGOTTEN_LOOK):
                    look = looks.get(reference)
                    if look is not None and now - look.at > LONGEST_WINDOW_S:
                        del looks[reference]
        for key in [key for key, history in self._histories.items() if history.kept_until < now]:
            self._histories.pop(key).pause()


def _reference(thing, gone=None):
    """Return a weak reference to ``thing``; a _Strong if that is impossible. When the thing is freed, the
    weak reference calls ``gone(reference)``, and afterwards returns None when called.
    """
    # A strong reference would keep an ended connection (some 20 KiB) or queue (1.5 KiB) for two minutes.
    try:
        return weakref.ref(thing, gone)
    except TypeError:
        return _Strong(thing)


class _Strong:
    """A strong reference with the interface of a weak one, for objects that allow no weak references."""

    __slots__ = ("_thing",)

    def __init__(self, thing):
        self._thing = thing

    def __call__(self):
        return self._thing

    def __eq__(self, other):
        return isinstance(other, _Strong) and self._thing == other()

    def __hash__(self):
        return hash(self._thing)


class _Look:
    """The last reading of an entity's counters: ``values`` and ``rates`` at ``at`` (monotonic seconds)."""

    __slots__ = ("at", "values", "rates")

    def __init__(self, at, values, rates):
        self.at = at
        self.values = values
        self.rates = rates

    def take(self, at, values, rates):
        self.at = at
        for index, value in enumerate(values):
            self.values[index] = value
            self.rates[index] = rates[index]


class _Looks(dict):
    """The last readings of one group, {reference of an entity: _Look}. A _Look is dropped with its entity."""

    __slots__ = ()

    # Those of many short-lived clients would otherwise fill memory.
    def find(self, thing):
        return self.get(_reference(thing))

    def add(self, thing, at, values):
        reference = _reference(thing, self._gone)
        look = _Look(at, array("d", values), array("d", bytes(8 * len(values))))
        self[reference] = look
        return look

    def _gone(self, reference):
        self.pop(reference, None)


class History:
    """Past values of one entity's counters: the last ``samples_max`` samples; if recorded, ten minutes of
    samples RECORD_INTERVAL_S apart; if ``is_long``, a day of samples LONG_INTERVAL_S apart.
    """

    __slots__ = ("wanted_until", "kept_until", "is_long", "_samples", "_recorded", "_long", "_long_at_s")

    def __init__(self, counters, samples_max, is_long=False):
        self.wanted_until = self.kept_until = 0.0
        self.is_long = is_long
        self._samples = Ring(counters, samples_max)
        self._recorded = None
        self._long = Ring(counters, int(LONG_S / LONG_INTERVAL_S)) if is_long else None
        self._long_at_s = -LONG_INTERVAL_S

    def add(self, unix_s, values):
        self._samples.add(unix_s, values)
        if self.is_long_due(unix_s):
            self.add_long(unix_s, values)

    def record(self, unix_s, values):
        """Add a sample to the ten minutes' samples and, if one is due, to the day's."""
        if self._recorded is None:
            self._recorded = Ring(len(values), int(RECORD_S / RECORD_INTERVAL_S))
        self._recorded.add(unix_s, values)
        if self.is_long_due(unix_s):
            self.add_long(unix_s, values)

    def pause(self):
        """Drop the samples taken for clients that looked. The ten minutes' and the day's samples stay."""
        self._samples.clear()

    def is_long_due(self, unix_s):
        # A clock that was set back must not end the samples until it is where it was.
        return self.is_long and not 0 <= unix_s - self._long_at_s < LONG_INTERVAL_S

    def add_long(self, unix_s, values):
        """Add a sample to the day's samples only."""
        self._long.add(unix_s, values)
        self._long_at_s = unix_s

    def go_on(self, unix_s, values):
        """Drop the samples from before a pause, and add one. The ten minutes' and the day's samples stay."""
        # Curves would prefer these to the day's samples.
        self.pause()
        self.add(unix_s, values)

    def curve(self, index, age_s, incr_s):
        """Return RabbitMQ's ``samples``, ``avg`` and ``avg_rate`` of the counter at ``index``, as a dict.
        Samples are newest first, ``incr_s`` seconds apart and at most ``age_s`` seconds old.
        """
        samples = []
        newest_s = last_s = None
        for at_s, value in self._newest_first(index):
            if newest_s is None:
                newest_s = at_s
            elif at_s < newest_s - age_s:
                break
            # A sample is due if the next one would be further off: timers are a little late.
            elif last_s - at_s < incr_s * 0.9:
                continue
            last_s = at_s
            # Processor seconds have a fraction, without which their curve would be steps.
            sample = int(value) if value.is_integer() else value
            samples.append({"sample": sample, "timestamp": int(at_s * 1000)})
        moved, took_ms = (
            samples[0]["sample"] - samples[-1]["sample"], samples[0]["timestamp"] - samples[-1]["timestamp"]
        )
        return {
            "samples": samples, "avg": sum(one["sample"] for one in samples) / len(samples),
            "avg_rate": moved * 1000 / took_ms if took_ms else 0.0,
        }

    def _newest_first(self, index):
        oldest_s = None
        for ring in (self._samples, self._recorded, self._long):
            for at_s, value in () if ring is None else ring.newest_first(index):
                if oldest_s is None or at_s < oldest_s:
                    oldest_s = at_s
                    yield at_s, value


class Ring:
    """The last samples, in an array of doubles. A sample is Unix seconds and the value of each counter."""

    __slots__ = ("_width", "_samples_max", "_ring", "_next")

    def __init__(self, counters, samples_max):
        self._width = counters + 1
        self._samples_max = samples_max
        self.clear()

    def clear(self):
        self._ring = array("d")
        self._next = 0

    def add(self, unix_s, values):
        sample = array("d", (unix_s, *values))
        if len(self._ring) < self._samples_max * self._width:
            self._ring.extend(sample)
        else:
            start = self._next * self._width
            self._ring[start:start + self._width] = sample
        self._next = (self._next + 1) % self._samples_max

    def newest_first(self, index):
        """Yield (Unix seconds, value) of the counter at ``index``, the newest first."""
        count = len(self._ring) // self._width
        for back in range(1, count + 1):
            start = (
                (self._next - back) % count * self._width if count == self._samples_max
                else (count - back) * self._width
            )
            yield self._ring[start], self._ring[start + 1 + index]
