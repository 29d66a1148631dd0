"""Expiries: each key once, at its earliest time."""
from gomq_py.mqtt.model.expiries import STALE, Expiries
from tests.support.queues import HandTimers


class Clock:
    """A bench for HandTimers, and what became due."""

    def __init__(self):
        self.now_ms = 1000
        self.timers = HandTimers(self)
        self.due = []
        self.expiries = Expiries(lambda: self.timers, self.take_all)

    def take_all(self):
        while (key := self.expiries.take()) is not None:
            self.due.append((self.now_ms, key))
        self.expiries.arm()

    def go_to(self, now_ms):
        while self.now_ms < now_ms:
            self.now_ms += 1
            self.timers.fire()


def test_keys_come_in_their_time_and_one_timer_runs():
    clock = Clock()
    for key, due_ms in (("late", 1300), ("soon", 1100), ("gone", 1050)):
        clock.expiries.note(key, due_ms)
        clock.expiries.arm()
    clock.expiries.forget("gone")
    clock.expiries.arm()

    assert len(clock.timers.pending) == 1
    clock.go_to(1400)

    assert clock.due == [(1100, "soon"), (1300, "late")] and not clock.timers.pending
    assert clock.expiries.count == 0


def test_earliest_time_of_a_key_counts_and_it_comes_once():
    clock = Clock()
    for due_ms in (1300, 1200, 1250, 1200):
        clock.expiries.note("a", due_ms)
    clock.expiries.arm()

    clock.go_to(1500)

    assert clock.due == [(1200, "a")]


def test_key_that_is_noted_for_ever_costs_no_more_than_a_bound():
    clock = Clock()
    for due_ms in range(1_000_000, 1_000_000 - 5 * STALE, -1):
        clock.expiries.note("a", due_ms)

    assert len(clock.expiries._heap) <= STALE + 4
    clock.expiries.stop()


def test_nothing_is_waited_for_after_a_stop():
    clock = Clock()
    clock.expiries.note("a", 1100)
    clock.expiries.arm()

    clock.expiries.stop()

    assert not clock.timers.pending
