"""Lookups: names that do not resolve hold up no others, and nothing else."""
import threading

import gevent
import pytest
from gevent import socket
from gevent.event import Event

from gomq_py.net import connecting as rooms
from gomq_py.net.connecting import Lookups, Unresolved
from tests.support.links import until
from tests.support.waiting import in_time

FOUND = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]
SOON_S = 0.05


class NameServer:
    """Answers no name that begins with "silent" before ``let_go`` is set. ``asked``: names, in order."""

    def __init__(self):
        self.let_go = threading.Event()
        self.asked = []
        self.is_down = False

    def __call__(self, host, port, *_):
        self.asked.append(host)
        if host.startswith("silent"):
            assert self.let_go.wait(in_time(60))
            if self.is_down:
                raise OSError("temporary failure in name resolution")
        if host.endswith(".invalid"):
            raise OSError("no such name")
        return FOUND


@pytest.fixture
def server():
    server = NameServer()
    yield server
    server.let_go.set()


@pytest.fixture
def asking():
    """``asking(lookups, host, ...)`` asks in greenlets of their own; they have ended with the test."""
    greenlets = []

    def ask(lookups, *hosts, timeout_s=in_time(60), account=None):
        begun = [gevent.spawn(_outcome, lookups, host, timeout_s, account) for host in hosts]
        greenlets.extend(begun)
        return begun
    yield ask
    gevent.killall(greenlets)


def _outcome(lookups, host, timeout_s, account):
    try:
        return lookups.find(host, 5672, timeout_s, account)
    except OSError as error:
        return error


def test_a_name_is_found_with_the_port_that_was_asked_for(server):
    assert Lookups(server).find("one.example", 5672) == [(*FOUND[0][:4], ("192.0.2.1", 5672))]


def test_a_name_that_stands_for_nothing_is_told_as_it_is(server):
    with pytest.raises(OSError, match="no such name"):
        Lookups(server).find("one.invalid", 5672)


def test_a_name_that_does_not_resolve_in_time_is_told(server):
    with pytest.raises(Unresolved, match="the name silent.example did not resolve within 0.05 s"):
        Lookups(server).find("silent.example", 5672, SOON_S)
    with pytest.raises(Unresolved, match="the name silent.example did not resolve within 0.1 s"):
        Lookups(server, resolve_s=0.1).find("silent.example", 5672, 30)


def test_an_address_waits_for_nobody(server, asking):
    lookups = Lookups(server, at_once=1, slow_s=in_time(60))
    asking(lookups, "silent.example")
    until(lambda: server.asked)

    lookups.find("192.0.2.1", 5672)

    assert server.asked == ["silent.example", "192.0.2.1"]


def test_names_hold_none_of_the_threads_that_others_use(server, asking):
    """As many as the hub has, and more."""
    pool = gevent.get_hub().threadpool
    asking(Lookups(server, at_once=pool.maxsize + 1), *(f"silent-{n}" for n in range(pool.maxsize + 1)))
    until(lambda: len(server.asked) == pool.maxsize + 1)

    with gevent.Timeout(in_time(30)):
        assert pool.apply(str, (1,)) == "1"


def test_many_who_ask_for_one_name_ask_once(server, asking):
    greenlets = asking(Lookups(server), *["silent.example"] * 300)
    until(lambda: server.asked)
    server.let_go.set()

    assert {str(greenlet.get()) for greenlet in greenlets} == {str(Lookups(server).find("x", 5672))}
    assert server.asked == ["silent.example", "x"]


def test_a_slow_name_gives_its_place_to_the_next(server, asking):
    lookups = Lookups(server, at_once=2, slow_s=SOON_S)
    asking(lookups, "silent-1", "silent-2")
    until(lambda: len(server.asked) == 2)

    with gevent.Timeout(in_time(30)):
        assert lookups.find("one.example", 5672, 30)


def test_of_too_many_names_the_newest_is_asked_for_first(server, asking):
    lookups = Lookups(server, at_once=1, slow_s=in_time(60))
    greenlets = asking(lookups, "silent.example")
    until(lambda: server.asked)
    greenlets += asking(lookups, "one.example", "two.example")
    until(lambda: len(lookups._waiting) == 2)
    server.let_go.set()

    gevent.joinall(greenlets)
    assert server.asked == ["silent.example", "two.example", "one.example"]


def test_a_name_that_nobody_waits_for_any_more_is_not_asked_for(server, asking):
    lookups = Lookups(server, at_once=1, slow_s=in_time(60))
    first = asking(lookups, "silent.example")
    until(lambda: server.asked)
    with pytest.raises(Unresolved):
        lookups.find("one.example", 5672, SOON_S)
    server.let_go.set()

    gevent.joinall(first)
    assert lookups.find("two.example", 5672)
    assert server.asked == ["silent.example", "two.example"]


def test_names_that_did_not_resolve_in_time_come_behind_others_and_hold_few_threads(
        server, asking, monkeypatch):
    monkeypatch.setattr(rooms, "LATE_AT_ONCE", 2)
    lookups = Lookups(server, slow_s=SOON_S)
    names = [f"silent-{n}" for n in range(5)]
    for outcome in asking(lookups, *names, timeout_s=2 * SOON_S):
        assert isinstance(outcome.get(), Unresolved)
    server.is_down = True
    server.let_go.set()
    until(lambda: not lookups._running)
    server.let_go.clear()
    server.asked.clear()

    asking(lookups, *names)
    until(lambda: len(server.asked) == 2)
    with gevent.Timeout(in_time(30)):
        assert lookups.find("one.example", 5672)

    assert sorted(server.asked[:2]) == ["silent-0", "silent-1"]
    assert server.asked[2:] == ["one.example"]
    server.let_go.set()
    until(lambda: len(server.asked) == 6)


def test_a_name_whose_server_says_late_that_it_cannot_be_found_is_late_and_one_that_is_found_is_not(server):
    lookups = Lookups(server, slow_s=0)
    with pytest.raises(OSError, match="no such name"):
        lookups.find("one.invalid", 5672)
    lookups.find("two.example", 5672)

    assert list(lookups._late) == ["one.invalid"]


def test_a_name_that_is_answered_again_is_asked_for_as_any_other(server, asking):
    lookups = Lookups(server, slow_s=SOON_S)
    asking(lookups, "silent.example", timeout_s=2 * SOON_S)[0].get()
    assert list(lookups._late) == ["silent.example"]
    server.let_go.set()
    until(lambda: not lookups._running)

    assert not lookups._late


def test_three_hundred_silent_names_hold_a_bounded_number_of_threads(server, asking):
    lookups = Lookups(server, slow_s=SOON_S)
    for number in range(300):
        asking(lookups, f"silent-{number}", account=number)

    until(lambda: len(server.asked) == rooms.THREADS_MOST - 2)
    with pytest.raises(Unresolved):
        lookups.find("one.example", 5672, 3 * SOON_S)
    assert len(server.asked) == rooms.THREADS_MOST - 2
    server.let_go.set()
    until(lambda: len(server.asked) == 300)


@pytest.mark.parametrize("slow_s, threads", [
    (SOON_S, rooms.THREADS_MOST * 3 // 4), (in_time(60), rooms.AT_ONCE)])
def test_names_of_one_user_leave_places_for_those_of_another(server, asking, slow_s, threads):
    lookups = Lookups(server, slow_s=slow_s)
    asking(lookups, *(f"silent-{n}" for n in range(300)), account=("greedy", "/"))
    until(lambda: len(server.asked) == threads)

    with gevent.Timeout(in_time(30)):
        assert lookups.find("one.example", 5672, 30, ("calm", "/"))

    assert server.asked[threads:] == ["one.example"]
    server.let_go.set()
    until(lambda: len(server.asked) == 301)


def test_names_of_one_user_do_not_come_before_those_of_another(server, asking):
    lookups = Lookups(server, at_once=1, slow_s=in_time(60))
    greenlets = asking(lookups, "silent.example", account=("greedy", "/"))
    until(lambda: server.asked)
    greenlets += asking(lookups, *(f"greedy-{n}" for n in range(9)), "same.example", account=("greedy", "/"))
    greenlets += asking(lookups, "same.example", "calm.example", account=("calm", "/"))
    until(lambda: len(lookups._waiting) == 11)
    server.let_go.set()

    gevent.joinall(greenlets)
    assert {"same.example", "calm.example"} < set(server.asked[1:5])
    assert not lookups._waiting and not lookups._rows


def test_late_names_of_one_user_leave_places_for_those_of_another(server, asking, monkeypatch):
    monkeypatch.setattr(rooms, "LATE_AT_ONCE", 4)
    lookups = Lookups(server, slow_s=SOON_S)
    names = [f"silent-{n}" for n in range(12)]
    for outcome in asking(lookups, *names, timeout_s=2 * SOON_S):
        outcome.get()
    server.is_down = True
    server.let_go.set()
    until(lambda: not lookups._running)
    server.let_go.clear()
    server.asked.clear()

    asking(lookups, *names[1:], account=("greedy", "/"))
    until(lambda: len(server.asked) == 4)
    asking(lookups, names[0], account=("calm", "/"))

    until(lambda: len(server.asked) == 5)
    assert server.asked[4] == names[0]
    server.let_go.set()
    until(lambda: len(server.asked) == 12)


def test_who_hears_an_answer_late_leaves_those_alone_who_ask_for_the_name_again(server, asking, monkeypatch):
    """They asked between the answer and the turn of the one who waited for it, while all places were taken.
    """
    asked_again = []

    class AnswerEvent(Event):
        def set(self):
            if not asked_again:
                asked_again.extend(asking(lookups, "silent-a.example"))
            super().set()

    monkeypatch.setattr(rooms, "Event", AnswerEvent)
    lookups = Lookups(server, at_once=1, slow_s=in_time(60))
    first, _ = asking(lookups, "silent-a.example", "silent-b.example")
    until(lambda: server.asked)

    server.let_go.set()
    first.join()

    asked_again[0].join()
    assert asked_again[0].value == [(*FOUND[0][:4], ("192.0.2.1", 5672))]
