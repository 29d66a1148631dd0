"""One timer for the heartbeats of all connections."""
import gc

import gevent

from gomq_py.hub.heartbeats import Heartbeats
from gomq_py.hub.timers import HubTimers
from tests.support.waiting import wait_until


class Watched:
    """A connection that counts its checks."""

    def __init__(self):
        self.checks = 0

    def check_heartbeat(self):
        self.checks += 1


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def wheel():
    clock = Clock()
    return Heartbeats(HubTimers(), clock), clock


def test_connection_is_checked_twice_per_interval():
    heartbeats, clock = wheel()
    connection = Watched()
    heartbeats.watch(connection, 10)

    for _ in range(8):
        clock.now += 5.2
        heartbeats.run_due()

    assert connection.checks == 8
    heartbeats.close()


def test_connection_is_not_checked_before_half_its_interval():
    heartbeats, clock = wheel()
    connection = Watched()
    heartbeats.watch(connection, 10)

    clock.now += 4.9
    heartbeats.run_due()

    assert connection.checks == 0
    heartbeats.close()


def test_checks_do_not_wander_where_each_comes_a_little_late():
    heartbeats, clock = wheel()
    connection = Watched()
    heartbeats.watch(connection, 1)

    for number in range(1, 101):
        clock.now = 1000 + number / 2 + 0.01
        heartbeats.run_due()

    assert connection.checks == 100
    heartbeats.close()


def test_late_timer_checks_once_and_not_twice():
    heartbeats, clock = wheel()
    connection = Watched()
    heartbeats.watch(connection, 2)

    clock.now += 60
    heartbeats.run_due()
    heartbeats.run_due()

    assert connection.checks == 1
    heartbeats.close()


def test_interval_of_zero_is_never_checked():
    heartbeats, clock = wheel()
    connection = Watched()
    heartbeats.watch(connection, 0)

    clock.now += 100000
    heartbeats.run_due()

    assert connection.checks == 0


def test_forgotten_connection_is_not_checked():
    heartbeats, clock = wheel()
    gone, there = Watched(), Watched()
    heartbeats.watch(gone, 2)
    heartbeats.watch(there, 2)
    heartbeats.forget(gone)

    clock.now += 2
    heartbeats.run_due()

    assert (gone.checks, there.checks) == (0, 1)
    heartbeats.close()


def test_connection_forgotten_by_the_check_of_another_is_not_checked():
    heartbeats, clock = wheel()
    second = Watched()

    class First(Watched):
        def check_heartbeat(self):
            heartbeats.forget(second)

    heartbeats.watch(First(), 2)
    heartbeats.watch(second, 2)
    clock.now += 2

    heartbeats.run_due()

    assert second.checks == 0
    heartbeats.close()


def test_check_that_raises_is_said_and_all_others_are_checked_all_the_same(caplog):
    heartbeats, clock = wheel()
    ill, connections = Watched(), [Watched(), Watched()]
    ill.check_heartbeat = lambda: 1 // 0
    for connection in (connections[0], ill, connections[1]):
        heartbeats.watch(connection, 10)

    for _ in range(3):
        clock.now += 5.2
        heartbeats.run_due()

    assert [connection.checks for connection in connections] == [3, 3]
    assert "a heartbeat check" in caplog.text and "ZeroDivisionError" in caplog.text
    heartbeats.close()


def test_timer_goes_on_after_a_check_that_raised():
    heartbeats = Heartbeats(HubTimers())
    ill, sound = Watched(), Watched()
    ill.check_heartbeat = lambda: 1 // 0
    heartbeats.watch(ill, 0.1)
    heartbeats.watch(sound, 0.1)

    wait_until(lambda: sound.checks > 1, sleep=gevent.sleep)

    heartbeats.close()


def test_timer_runs_by_itself():
    heartbeats = Heartbeats(HubTimers())
    connection = Watched()
    heartbeats.watch(connection, 1)

    wait_until(lambda: connection.checks >= 2, sleep=gevent.sleep)

    heartbeats.close()


def test_nothing_is_kept_of_connections_that_ended():
    """A client may choose an interval of 18 hours: as many connections as it opens and
    closes meanwhile must not stay.
    """
    heartbeats, clock = wheel()
    kept = Watched()
    heartbeats.watch(kept, 65535)
    for _ in range(1000):
        connection = Watched()
        heartbeats.watch(connection, 65535)
        heartbeats.forget(connection)
        clock.now += 1

    assert gc.get_referrers(connection) == []
    assert len(heartbeats._order) < 200 and len(heartbeats._buckets) == 1
    clock.now += 40000
    heartbeats.run_due()
    assert kept.checks == 1
    heartbeats.close()


def test_without_connections_nothing_ticks():
    heartbeats, clock = wheel()
    connection = Watched()
    heartbeats.watch(connection, 10)
    heartbeats.forget(connection)

    clock.now += 20
    heartbeats._on_timer()

    assert heartbeats._timer is None
    heartbeats.close()
