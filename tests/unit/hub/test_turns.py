"""Giving way: sockets are looked at in between."""
import gevent
from gevent import socket

from gomq_py.hub import turns
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way, paced
from tests.support.clocks import StepClock


def test_a_socket_is_served_between_two_slices():
    """A hundred slices of an answer, and a message that comes in with the first: with gevent.sleep(0) it
    would wait for half of them.
    """
    near, far = socket.socketpair()
    served_after = []
    slices = 0
    watcher = gevent.get_hub().loop.io(near.fileno(), 1)

    def serve():
        served_after.append(slices)
        near.recv(1)

    watcher.start(serve)
    far.send(b"x")
    for slices in range(100):
        give_way()
    watcher.stop()
    near.close()
    far.close()

    assert served_after[0] <= 3


def test_objects_are_paced_by_the_time_that_they_take_and_not_by_their_number(monkeypatch):
    """Each look at the clock is a second later; the fourth object takes a minute."""
    clock, given = StepClock(1), []
    monkeypatch.setattr(turns, "SliceClock", lambda every: SliceClock(2.5, every, clock))
    monkeypatch.setattr(turns, "give_way", lambda: given.append(seen[-1]))
    seen = []

    for number in paced(range(1, 11)):
        seen.append(number)
        if number == 4:
            clock.now += 60

    assert seen == list(range(1, 11)) and given == [3, 4, 7, 10]
