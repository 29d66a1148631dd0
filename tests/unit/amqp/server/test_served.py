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

    def __init__(self, is_left_alone):
        turns = SimpleNamespace(call=lambda function: function())
        self.hub = SimpleNamespace(is_closed=False, slow_turns=turns)
        self._is_left_alone = is_left_alone

    def begin(self, over):
        self.over = over

    def lend_nothing(self):
        pass

    def is_left_alone(self):
        return self._is_left_alone

    def finish(self):
        raise ConnectionResetError(104, "Connection reset by peer")


def served(log, is_left_alone=True):
    strangers = SimpleNamespace(info=lambda key, *_: log.append(key))
    connection = Connection(is_left_alone)
    served_one = Served(connection, "amqp", ADDRESS, strangers, lambda _connection: log.append("given back"))
    return served_one, connection


@pytest.mark.parametrize("is_left_alone", [True, False])
def test_an_end_is_told_by_the_clients_host_and_all_is_given_back_once(is_left_alone):
    log: list = []
    client, connection = served(log, is_left_alone=is_left_alone)
    client.begin()
    client.when_gone(lambda: log.append("gone"))

    connection.over()
    assert log == []
    wait_until(lambda: "gone" in log, sleep=gevent.sleep)

    assert log == [("lost", "10.0.0.7"), "given back", "gone"]


def test_a_fault_at_the_beginning_gives_everything_back_and_is_raised():
    log: list = []
    client, connection = served(log)

    def fails(over):
        raise OSError(9, "Bad file descriptor")

    connection.begin = fails

    with pytest.raises(OSError, match="Bad file"):
        client.begin()
    assert log == ["given back"]


def test_whoever_is_gone_before_it_is_asked_for_has_given_everything_back():
    log: list = []
    client, connection = served(log)
    client.begin()
    connection.over()
    wait_until(lambda: "given back" in log, sleep=gevent.sleep)

    client.when_gone(lambda: log.append("gone"))

    assert log == [("lost", "10.0.0.7"), "given back", "gone"]


def test_a_client_whose_hub_is_closed_is_cut_off_and_nobody_is_told():
    log: list = []
    client, connection = served(log)
    client.begin()
    connection.hub.is_closed = True
    connection.cut_off = lambda: log.append("cut off")

    connection.over()
    wait_until(lambda: "given back" in log, sleep=gevent.sleep)

    assert log == ["cut off", "given back"]
