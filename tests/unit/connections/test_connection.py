"""The way of a client's connection to its end: who waits for it, and what is told of it."""
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.connections.connection import ClientConnection
from tests.support.waiting import wait_until

ADDRESS = "10.0.0.7", 50_000


class Connection(ClientConnection):
    """One whose last word is not taken."""

    __slots__ = ("is_left", "log")

    door = "amqp"

    def __init__(self, log, is_left):
        turns = SimpleNamespace(call=lambda function: function())
        strangers = SimpleNamespace(info=lambda key, *_: log.append(key))
        server = SimpleNamespace(
            hub=SimpleNamespace(is_closed=False, slow_turns=turns, scheduler=None), strangers=strangers,
            broker=SimpleNamespace(durability=None, events=None),
            gate=SimpleNamespace(leave=lambda _admitted: log.append("given back")))
        socket = SimpleNamespace(getsockname=lambda: ("10.0.0.1", 5672))
        super().__init__(server, socket, ADDRESS, None)
        self.is_left = is_left
        self.log = log

    def _has_left(self):
        return self.is_left

    def _say_last_word(self):
        raise ConnectionResetError(104, "Connection reset by peer")

    def _end(self):
        self.log.append("ended")


@pytest.mark.parametrize("is_left", [True, False])
def test_an_end_is_told_by_the_clients_host_and_all_is_given_back_once(is_left):
    log: list = []
    connection = Connection(log, is_left)
    connection.when_gone(lambda: log.append("gone"))

    connection.over()
    assert log == []
    wait_until(lambda: "gone" in log, sleep=gevent.sleep)

    assert log == ["ended", ("lost", "10.0.0.7"), "given back", "gone"]


def test_nobody_is_told_of_an_end_behind_that_of_the_hub():
    log: list = []
    connection = Connection(log, is_left=True)
    connection.hub.is_closed = True
    connection.hub.clients = SimpleNamespace(forget=lambda _connection: log.append("forgotten"))
    connection.stream = SimpleNamespace(stop=lambda: log.append("stopped"))
    connection.output = SimpleNamespace(close=lambda: log.append("closed"))

    connection.over()
    wait_until(lambda: "given back" in log, sleep=gevent.sleep)

    assert log == ["stopped", "closed", "forgotten", "given back"]
