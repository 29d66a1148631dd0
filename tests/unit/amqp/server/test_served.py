"""Served: who waits for the end of a client, and what is told of it."""
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.amqp.server.served import Served
from tests.support.waiting import wait_until

ADDRESS = "10.0.0.7", 50_000


class Connection:
    """One whose last word is not taken."""

    peer = "10.0.0.7:50000"

    def __init__(self, is_served, is_left_alone):
        self.hub = SimpleNamespace(is_closed=False)
        self._is_served = is_served
        self._is_left_alone = is_left_alone

    def begin(self, over):
        self.over = over
        return self._is_served

    def is_left_alone(self):
        return self._is_left_alone

    def finish(self):
        raise ConnectionResetError(104, "Connection reset by peer")


def served(log, is_served=True, is_left_alone=True):
    strangers = SimpleNamespace(info=lambda key, *_: log.append(key))
    connection = Connection(is_served, is_left_alone)
    return Served(connection, "amqp", ADDRESS, strangers, lambda: log.append("given back")), connection


@pytest.mark.parametrize("is_left_alone", [True, False])
def test_an_end_is_told_by_the_clients_host_and_all_is_given_back_once(is_left_alone):
    log: list = []
    client, connection = served(log, is_left_alone=is_left_alone)
    assert client.begin()
    client.when_gone(lambda: log.append("gone"))

    connection.over()
    assert log == []
    wait_until(lambda: "gone" in log, sleep=gevent.sleep)

    assert log == [("lost", "10.0.0.7"), "given back", "gone"]


def test_whoever_is_not_let_in_gives_everything_back():
    log: list = []
    client, _ = served(log, is_served=False)

    assert not client.begin()
    assert log == ["given back"]
