"""Timers of the model: they fire once, or never where they were stopped, and leave nothing behind."""
import gc
import logging
import time
import weakref

import gevent
import pytest

from gomq_py.broker.queues.due_timer import DueTimer
from gomq_py.hub import timers as hub_timers
from gomq_py.hub.timers import HubTimers
from tests.support.waiting import wait_until


@pytest.fixture
def timers():
    timers = HubTimers()
    yield timers
    timers.close()


def fired(done, count=1):
    wait_until(lambda: len(done) >= count, sleep=gevent.sleep)
    return done


def test_callback_is_called_once(timers):
    done = []

    timers.start(0, lambda: done.append(1))
    timers.start(20, lambda: done.append(2))

    assert fired(done, 2) == [1, 2]


def test_time_that_has_passed_is_now(timers):
    done = []

    timers.start(-5, lambda: done.append(1))

    assert fired(done) == [1]


def test_one_that_is_stopped_does_not_fire_and_may_be_stopped_again(timers):
    done = []
    timer = timers.start(0, lambda: done.append("stopped"))

    timer.stop()
    timer.stop()
    timers.start(5, lambda: done.append("later"))

    assert fired(done) == ["later"]


def test_callback_may_start_and_stop_others(timers):
    done = []
    other = timers.start(10, lambda: done.append("stopped"))

    timers.start(0, lambda: (other.stop(), timers.start(20, lambda: done.append("started"))))

    assert fired(done) == ["started"]


def test_callback_that_raises_is_logged(timers, caplog):
    caplog.set_level(logging.ERROR)

    def fail():
        raise RuntimeError("its own fault")

    timers.start(0, fail)

    wait_until(lambda: "a timer's work failed" in caplog.text, sleep=gevent.sleep)


def test_what_has_fired_is_let_go_of(timers):
    class Thing:
        """Holds a reference."""

        def __call__(self):
            done.append(1)

    done, thing = [], Thing()
    gone = weakref.ref(thing)
    timers.start(0, thing)
    del thing
    fired(done)
    gc.collect()

    assert gone() is None


class Clock:
    """The system's, which somebody sets."""

    def __init__(self):
        self.ahead_s = 0.0
        self._time = time.time

    def __call__(self):
        return self._time() + self.ahead_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    monkeypatch.setattr(hub_timers, "LOOK_MS", 10)
    return clock


def test_what_waits_for_a_time_is_due_when_the_clock_is_set_to_it(timers, clock):
    """On a7718617 it waited for as long as it would have without that."""
    hour_ms = 3_600_000
    done = []
    queue = DueTimer(timers, lambda: done.append(queue.take()))
    queue.push(timers.now_ms() + hour_ms, 1)
    queue.arm()
    timers.start(hour_ms, lambda: done.append("that waits for an hour"))

    clock.ahead_s = 2 * hour_ms / 1000
    fired(done)
    queue.push(timers.now_ms() + 1, 2)
    queue.arm()

    assert fired(done, 2) == [1, 2]


def test_what_waits_for_a_time_goes_on_when_the_clock_is_set_back(timers, clock):
    done, due_ms = [], timers.now_ms() + 30
    timers.start_at(due_ms, lambda: done.append(timers.now_ms()))

    clock.ahead_s = -1.0

    assert fired(done)[0] >= due_ms


def test_nobody_looks_at_the_clock_while_nothing_waits_for_a_time(timers, clock):
    done = []
    timers.start_at(timers.now_ms(), lambda: done.append(1))
    fired(done)

    wait_until(lambda: timers._watch is None, sleep=gevent.sleep)
