"""Rates and histories over clocks that the test moves."""
import gc
import weakref

import gevent
import pytest
from gevent.event import Event

from gomq_py.amqp.server.channel import Channel
from gomq_py.amqp.server.connection import Connection
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.http import rates as rates_module
from gomq_py.http.rates import (
    FORGOTTEN_LOOK, LENGTHS, LONG_MAX, LONGEST_WINDOW_S, MESSAGES, Group, History, Rates,
)
from gomq_py.hub import turns
from gomq_py.hub.scheduler import SliceClock
from tests.support.waiting import in_time, wait_until


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Thing:
    published = ready = 0


GROUP = Group({"ready": LENGTHS, "published": MESSAGES}, lambda thing: (thing.ready, thing.published))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def rates(clock):
    return Rates(0.001, 4, now_s=clock, unix_s=clock)


def look(rates, thing, windows=None):
    """(details of ready, details of published)"""
    view = rates.look(GROUP, thing, windows)
    return view.details(0), view.details(1)


def test_a_rate_is_the_change_between_two_looks(rates, clock):
    thing = Thing()
    first = look(rates, thing)
    clock.now, thing.published, thing.ready = 5.0, 100, -5

    assert (first, look(rates, thing)) == (({"rate": 0.0}, {"rate": 0.0}), ({"rate": -1.0}, {"rate": 20.0}))


def test_looks_in_quick_succession_share_a_rate(rates, clock):
    thing = Thing()
    look(rates, thing)
    clock.now, thing.published = 2.0, 20
    look(rates, thing)
    clock.now, thing.published = 2.1, 1000

    assert look(rates, thing)[1] == {"rate": 10.0}


def test_after_a_long_pause_a_rate_starts_anew(rates, clock):
    thing = Thing()
    look(rates, thing)
    clock.now, thing.published = 3600.0, 10**6

    assert look(rates, thing)[1] == {"rate": 0.0}


def test_a_thing_is_put_with_its_details(rates):
    assert rates.look(GROUP, Thing()).put({"name": "x"}, 1) == {
        "name": "x", "published": 0, "published_details": {"rate": 0.0}
    }


def test_samples_are_taken_while_somebody_wants_them_and_no_longer(rates, clock):
    """The greenlet that samples ends by itself, and what was kept goes with it."""
    thing = Thing()
    windows = {MESSAGES: (10, 1)}
    lengths, messages = look(rates, thing, windows)
    clock.now, thing.published = 2.0, 8
    keeper = rates._keeper
    rates.sample()

    assert "samples" not in lengths and messages["samples"] == [{"sample": 0, "timestamp": 0}]
    assert look(rates, thing, windows)[1]["samples"][0] == {"sample": 8, "timestamp": 2000}
    clock.now = 1000.0
    keeper.join(in_time(30))
    assert keeper.dead and not rates._looks_count() and not rates._histories


def test_a_long_list_begins_no_history_and_shows_those_there_are(rates, clock):
    seen, unseen = Thing(), Thing()
    rates.look(GROUP, seen, {MESSAGES: (60.0, 5.0)})
    clock.now, seen.published, unseen.published = 5.0, 10, 7
    rates.sample()

    listed = [
        rates.look(GROUP, thing, {MESSAGES: (60.0, 5.0)}, begins=False).details(1)
        for thing in (seen, unseen)]

    assert [[one["sample"] for one in details["samples"]] for details in listed] == [[10, 0], [7]]
    assert (listed[1]["avg"], listed[1]["avg_rate"]) == (7.0, 0.0)
    clock.now = 10.0
    rates.sample()
    again = rates.look(GROUP, unseen, {MESSAGES: (60.0, 5.0)}, begins=False).details(1)
    assert len(again["samples"]) == 1


def test_what_is_kept_is_bounded(rates, monkeypatch):
    monkeypatch.setattr(rates_module, "LOOKS_MAX", 10)
    monkeypatch.setattr(rates_module, "HISTORIES_MAX", 3)
    things = [Thing() for _ in range(50)]

    for thing in things:
        look(rates, thing, {MESSAGES: (10, 1)})

    assert (rates._looks_count(), len(rates._histories)) == (10, 3)


def test_lists_of_more_things_than_have_a_rate_have_those_of_the_first_each_time(rates, clock, monkeypatch):
    """Each took the place of the one looked at longest ago:
    the next list found none of them, and made 100 000 objects anew.
    """
    monkeypatch.setattr(rates_module, "LOOKS_MAX", 10)
    things = [Thing() for _ in range(12)]
    for thing in things:
        look(rates, thing)
    clock.now = 5.0
    for thing in things:
        thing.published = 100

    assert [look(rates, thing)[1]["rate"] for thing in things] == 10 * [20.0] + 2 * [0.0]


def test_look_goes_with_its_thing(rates):
    things = [Thing() for _ in range(3)]
    for thing in things:
        look(rates, thing)
    del thing
    things.pop()

    assert rates._looks_count() == 2


def test_looks_are_forgotten_in_slices_and_those_of_late_are_kept(rates, clock, monkeypatch):
    """Every slice ends with its first look at the clock.

    100 000 that were forgotten together held everybody up for 50 ms.
    """
    gave_way = []
    monkeypatch.setattr(turns, "SliceClock", lambda every=1: SliceClock(0, every))
    monkeypatch.setattr(turns, "give_way", lambda: gave_way.append(None))
    things = [Thing() for _ in range(10 * FORGOTTEN_LOOK)]
    for thing in things:
        look(rates, thing)
    clock.now = LONGEST_WINDOW_S
    look(rates, things[7])
    clock.now = 2 * LONGEST_WINDOW_S

    rates.sample()

    assert rates._looks_count() == 1 and len(gave_way) == 10


def test_a_curve_is_newest_first_and_cut_to_age_and_increment():
    history = History(1, 100)
    for second in range(50):
        history.add(float(second), (second * second,))

    curve = history.curve(0, 20, 5)

    assert [(one["timestamp"], one["sample"]) for one in curve["samples"]] == [
        (1000 * second, second ** 2) for second in (49, 44, 39, 34, 29)
    ]
    assert (
        curve["avg_rate"] == (49 ** 2 - 29 ** 2) / 20
        and curve["avg"] == sum(second ** 2 for second in (49, 44, 39, 34, 29)) / 5
    )


def test_samples_keep_their_fraction():
    history = History(1, 3)
    for second in range(3):
        history.add(float(second), (second / 4,))

    assert [one["sample"] for one in history.curve(0, 100, 1)["samples"]] == [0.5, 0.25, 0]


def test_a_full_history_drops_its_oldest_sample():
    history = History(2, 3)
    for second in range(8):
        history.add(float(second), (second, -second))

    assert [one["sample"] for one in history.curve(1, 100, 1)["samples"]] == [-7, -6, -5]


def test_a_history_is_sampled_from_its_beginning_on_although_lists_were_looked_at_before(clock):
    """The keeper that only forgets looks sleeps for a minute; a history wakes it."""
    rates = Rates(0.001, 4, now_s=clock, unix_s=clock)
    thing = Thing()
    look(rates, thing)
    gevent.sleep(0)
    look(rates, thing, {LENGTHS: (60, 1)})
    clock.now = 5.0

    wait_until(
        lambda: len(look(rates, thing, {LENGTHS: (60, 1)})[0]["samples"]) > 1, timeout_s=in_time(10),
        sleep=gevent.sleep, what="a second sample")
    rates.close()


class Slept(Event):
    """An Event that knows for how long it was waited for."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return super().wait(timeout)


def test_keeper_of_a_day_wakes_once_in_a_minute_while_nobody_looks_and_at_once_when_somebody_does(clock):
    rates, thing = Rates(0.001, 4, now_s=clock, unix_s=clock), Thing()
    rates._begun = begun = Slept()
    samples_of(rates, thing, 60)
    clock.now = 1000.0

    wait_until(lambda: begun.waits, timeout_s=in_time(10), sleep=gevent.sleep, what="a long sleep")
    samples_of(rates, thing, 60)
    clock.now = 1005.0
    wait_until(
        lambda: len(samples_of(rates, thing, 60)) > 1, timeout_s=in_time(10), sleep=gevent.sleep,
        what="a second sample")

    assert begun.waits == [60.0]
    rates.close()


LONG = Group({"ready": LENGTHS, "published": MESSAGES}, lambda thing: (thing.ready, thing.published), True)


def samples_of(rates, thing, age_s, group=LONG):
    curve = rates.look(group, thing, {LENGTHS: (age_s, 1)}).details(0)
    return [(one["timestamp"] // 1000, one["sample"]) for one in curve["samples"]]


def test_a_clock_that_was_set_back_does_not_end_the_samples_of_a_day():
    history = History(1, 120, is_long=True)
    for at_s in (100_000, 100_120, 10_000, 10_060, 10_120):
        history.record(at_s, (1.0,))

    assert [at_s for at_s, _ in history._long.newest_first(0)] == [10_120, 10_000, 100_120, 100_000]


def test_a_day_is_kept_of_long_groups_in_fewer_samples_also_while_nobody_looks(rates, clock):
    thing = Thing()
    samples_of(rates, thing, 60)
    for clock.now in range(10, 86000, 10):
        thing.ready = clock.now
        rates.sample()
    kept = len(next(iter(rates._histories.values()))._samples._ring)

    seen = samples_of(rates, thing, 86400)

    assert kept <= 4 * 3
    assert seen[0] == (85990, 85990) and seen[-1] == (0, 0)
    assert len(seen) == 1 + 86000 // 120 + 1
    assert all(at == value for at, value in seen)
    assert len(samples_of(rates, thing, 1200)) == 11


def test_a_day_is_forgotten_when_nobody_has_looked_for_one(rates, clock):
    thing, other = Thing(), Thing()
    samples_of(rates, thing, 60)
    samples_of(rates, other, 60, GROUP)
    clock.now = 2 * LONGEST_WINDOW_S

    rates.sample()
    assert [key[0] for key in rates._histories] == [LONG]
    clock.now = 86400 + 2 * LONGEST_WINDOW_S
    rates.sample()

    assert not rates._histories


def test_a_day_is_kept_of_so_many_things_at_most(rates, clock):
    things = [Thing() for _ in range(LONG_MAX + 5)]
    for thing in things:
        samples_of(rates, thing, 60)

    assert sum(one.is_long for one in rates._histories.values()) == LONG_MAX


def test_thing_that_has_ended_is_not_kept(rates, clock):
    """Neither by a look nor by a history, long before they are forgotten;
    and the next thing at its place in memory begins anew.
    """
    thing = Thing()
    look(rates, thing, {MESSAGES: (60, 5)})
    gone = weakref.ref(thing)

    del thing
    gc.collect()
    assert gone() is None
    rates.sample()

    assert not rates._histories


def test_thing_without_weak_references_has_rates_too(rates, clock):
    class Slotted:
        __slots__ = ("published", "ready")

    thing = Slotted()
    thing.published = thing.ready = 0
    look(rates, thing, {MESSAGES: (60, 5)})
    clock.now, thing.published = 5.0, 100
    rates.sample()

    assert look(rates, thing, {MESSAGES: (60, 5)})[1]["rate"] == 20.0


@pytest.mark.parametrize("kind", [Connection, Channel, Queue, StreamQueue, Exchange])
def test_what_comes_and_goes_can_be_referenced_weakly(kind):
    assert kind.__weakrefoffset__
