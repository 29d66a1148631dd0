"""Giving way: sockets are looked at in between."""
import gevent
from gevent import socket

from gomq_py.broker.turns import give_way


def test_a_socket_is_served_between_two_slices():
    """A hundred slices of an answer, and a message that comes in with the first: with gevent.sleep(0) it would wait for half of them."""
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
