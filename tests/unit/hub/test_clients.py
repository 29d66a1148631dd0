"""Who is connected: by user, by vhost and in all, and how everybody's leave is taken."""
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.hub import clients as clients_module
from gomq_py.hub.clients import Clients
from tests.support.waiting import in_time


class ByHand:
    """A scheduler whose jobs the test does."""

    def __init__(self):
        self.jobs = []

    def start(self, job):
        if job not in self.jobs:
            self.jobs.append(job)


class Connection:
    """Of any protocol. ``agrees``: what it is told, it does; else it says nothing."""

    def __init__(self, clients, user="bob", vhost=None, agrees=True, door="a door"):
        self.door = door
        self.user, self.vhost = SimpleNamespace(name=user, identity=(user, False)), vhost
        self._clients, self._agrees = clients, agrees
        self.told, self.cut = [], []

    def force_close(self, reason):
        self.told.append(reason)
        if self._agrees:
            self._clients.forget(self)

    def block(self, reason):
        self.told.append(reason)

    def unblock(self):
        self.told.append("over")

    def abort(self, why):
        self.cut.append(why)
        self._clients.forget(self)


@pytest.fixture
def clients():
    return Clients(ByHand())


@pytest.fixture
def connected(clients):
    """A function that has somebody come in."""
    def connect(**given):
        connection = Connection(clients, **given)
        clients.register(connection)
        return connection

    return connect


def test_connections_are_listed_in_the_order_of_their_coming(clients, connected):
    first, second, third = connected(), connected(), connected()

    clients.forget(second)

    assert clients.all() == list(clients) == [first, third]
    assert len(clients) == 2 and first in clients and second not in clients


def test_connections_are_found_and_counted_by_user_and_by_vhost(clients, connected):
    here, there = object(), object()
    first, second, third = connected(vhost=here), connected(user="eve", vhost=here), connected(vhost=there)

    assert clients.of_user(("bob", False)) == [first, third] and clients.count_of_user(("bob", False)) == 2
    assert clients.in_vhost(here) == [first, second] and clients.count_in_vhost(here) == 2
    assert clients.of_user(("nobody", False)) == clients.in_vhost(object()) == []
    assert clients.count_of_user(("nobody", False)) == clients.count_in_vhost(object()) == 0


def test_connections_are_counted_by_the_door_they_came_through(clients, connected):
    first = connected()
    connected(door="another")

    clients.forget(first)

    assert [clients.count_of_door(name) for name in ("a door", "another", "none")] == [0, 1, 0]


def test_user_that_was_made_anew_has_the_connections_of_the_one_before(clients, connected):
    """They are other objects; to an operator, and to a limit, it is the same user."""
    before, after = connected(), connected()

    assert before.user is not after.user and clients.of_user(("bob", False)) == [before, after]


def test_nothing_is_kept_of_users_and_vhosts_that_have_left(clients, connected):
    for number in range(3):
        clients.forget(connected(user=f"user-{number}", vhost=object()))

    assert not clients and not clients._by_user and not clients._by_vhost


def test_connection_that_is_forgotten_twice_has_left_once(clients, connected):
    connection = connected()
    connected()

    clients.forget(connection)
    clients.forget(connection)

    assert (clients.churn.connection_created, clients.churn.connection_closed, len(clients)) == (2, 1, 1)


def test_leave_is_taken_of_all_and_nobody_is_waited_for_in_vain(clients, connected, monkeypatch):
    monkeypatch.setattr(clients_module, "STOP_TIMEOUT_S", 3600)
    everybody = [connected(), connected()]

    clients.close("over")

    assert clients.is_closing and not clients
    assert [one.told for one in everybody] == [["over"], ["over"]] and not any(one.cut for one in everybody)


@pytest.mark.parametrize("error", [RuntimeError, gevent.GreenletExit])
def test_leave_is_taken_of_all_though_one_cannot_be_told(clients, connected, monkeypatch, error):
    monkeypatch.setattr(clients_module, "STOP_TIMEOUT_S", 0)
    odd, other = connected(), connected()

    def fail(_reason):
        raise error("cannot be told")

    odd.force_close = fail

    with pytest.raises(error):
        clients.close("over")

    assert other.told == ["over"] and odd.cut


def test_clients_that_agree_late_are_waited_for(clients, connected, monkeypatch):
    monkeypatch.setattr(clients_module, "STOP_TIMEOUT_S", in_time(30))
    connection = connected(agrees=False)
    closing = gevent.spawn(clients.close, "over")
    gevent.sleep(0)
    assert connection.told == ["over"] and not closing.ready()

    clients.forget(connection)

    closing.join(timeout=in_time(30))
    assert closing.successful() and not connection.cut


def test_client_that_does_not_agree_is_cut_off(clients, connected, monkeypatch):
    monkeypatch.setattr(clients_module, "STOP_TIMEOUT_S", 0.02)
    connection = connected(agrees=False)

    clients.close("over")

    assert len(connection.cut) == 1 and not clients


def test_counts_of_a_login_look_at_no_other_connection(clients, connected):
    others = [connected(user=f"user-{number}", vhost=object()) for number in range(50)]
    vhost = others[3].vhost
    for one in others:
        del one.user, one.vhost, one.door

    assert (
        clients.count_of_door("a door") == 50 and clients.count_of_user(("user-7", False)) == 1
        and clients.count_in_vhost(vhost) == 1
    )


def test_everybody_hears_of_an_alarm_and_who_comes_meanwhile_too(clients, connected):
    early, gone = connected(), connected()
    clients.alarmed("low on disk")
    clients.forget(gone)
    late = connected()

    clients.alarmed(None)

    after = connected()
    assert (early.told, late.told, gone.told, after.told) == (
        ["low on disk", "over"], ["low on disk", "over"], ["low on disk"], []
    )
