"""Wakeup: it wakes who waits when it is rung or at a time, and leaves nothing in the loop."""
import time

import gevent
import pytest

from gomq_py.storage.flush.flushing import Wakeup
from tests.support.waiting import in_time

FAR_S = 3600.0


@pytest.fixture
def wakeup():
    wakeup = Wakeup()
    yield wakeup
    wakeup.close()


def test_what_was_rung_before_is_not_waited_for(wakeup):
    wakeup.set()

    with gevent.Timeout(in_time(10)):
        wakeup.wait(time.monotonic() + FAR_S)

    assert wakeup.is_rung
    wakeup.clear()
    assert not wakeup.is_rung


def test_who_waits_goes_on_when_it_is_rung_and_others_have_their_turn_before(wakeup):
    heard = []
    waiting = gevent.spawn(lambda: (wakeup.wait(time.monotonic() + FAR_S), heard.append("rung")))
    gevent.sleep(0)

    wakeup.set()
    wakeup.set()
    heard.append("others")
    waiting.join()

    assert heard == ["others", "rung"]


def test_who_waits_goes_on_when_the_time_has_come(wakeup):
    until = time.monotonic() + 0.01

    with gevent.Timeout(in_time(10)):
        while time.monotonic() < until:
            wakeup.wait(until)

    assert not wakeup.is_rung and wakeup.rings_at_s == 0.0


def test_a_timer_for_an_earlier_time_has_to_do_for_a_later_one(wakeup):
    """Or each wait would make one."""
    first = time.monotonic() + FAR_S
    for until, due in ((first, first), (first + 5, first), (first - 5, first - 5)):
        waiting = gevent.spawn(wakeup.wait, until)
        gevent.sleep(0)
        assert wakeup.rings_at_s == due
        wakeup.set()
        waiting.join()
        wakeup.clear()


def test_a_ring_wakes_nobody_who_was_ended_and_waits_elsewhere_by_now(wakeup):
    events = []

    def wait_twice():
        try:
            wakeup.wait(time.monotonic() + FAR_S)
        except gevent.GreenletExit:
            gevent.sleep(0)
            gevent.sleep(0)
            events.append("slept")

    waiting = gevent.spawn(wait_twice)
    gevent.sleep(0)
    waiting.kill(block=False)
    wakeup.set()
    waiting.join()

    assert events == ["slept"] and wakeup.rings_at_s == 0.0


def test_a_wait_that_is_cut_short_leaves_no_timer(wakeup):
    waiting = gevent.spawn(wakeup.wait, time.monotonic() + FAR_S)
    gevent.sleep(0)
    assert wakeup.rings_at_s > 0

    waiting.kill()

    assert wakeup.rings_at_s == 0.0
