"""What links of all users share: turns to connect, lookups of names and memory. As much of each as one user's
shovels hold, something is left for another's.
"""
import socket
import threading
from functools import partial

import gevent
import pytest
import requests

from gomq_py import Broker
from gomq_py.client.connection import Connection
from gomq_py.links.source_reader import LEAST_OCTETS, MemoryBudget
from gomq_py.net.connecting import AT_ONCE, Lookups
from gomq_py.hub.turns import PacedTurns
from tests.support.hostile_broker import HostileBroker
from tests.support.links import fill
from tests.support.waiting import in_time, wait_until

GREEDY = 12
MIB = 1024 * 1024


@pytest.fixture
def turns(monkeypatch):
    """Links have so many turns as it is released."""
    turns = threading.Semaphore(0)
    pause = partial(wait_until, partial(turns.acquire, blocking=False), in_time(60), sleep=gevent.sleep)
    usual = PacedTurns._pause
    monkeypatch.setattr(
        PacedTurns, "_pause", lambda turns: pause() if turns._rest_most_s else usual(turns))
    return turns


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path, http_port=0, links_amqp_hosts_allowed="127.0.0.0/8") as broker:
        for user in ("greedy", "calm"):
            put(broker, f"users/{user}", {"password": user, "tags": "policymaker"})
            put(broker, f"permissions/%2F/{user}", {"configure": ".*", "write": ".*", "read": ".*"})
        yield broker


def put(broker, path, value, user="guest"):
    requests.put(
        f"{broker.http_url.rstrip('/')}/api/{path}", json=value, auth=(user, user), timeout=in_time(60)
    ).raise_for_status()


def put_shovel(broker, user, name, source="amqp://", target="amqp://"):
    put(broker, f"parameters/shovel/%2F/{name}", {"value": {
        "src-uri": source, "src-queue": user, "dest-uri": target, "dest-queue": "b"}}, user)


def waiting(launched):
    return len(launched.hub.link_turns._line)


def test_shovel_of_one_user_has_its_turn_before_all_of_another_have_had_theirs(turns, broker):
    """On the commit before 91b2651d it does not connect: three others have the turns."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as all_others, socket.create_server(
            ("127.0.0.1", 0)) as calm:
        for number in range(GREEDY + 1):
            user, peer = ("greedy", all_others) if number < GREEDY else ("calm", calm)
            put_shovel(broker, user, f"s{number}", f"amqp://127.0.0.1:{peer.getsockname()[1]}")
        wait_until(lambda: broker.call(waiting) == GREEDY)  # the first had its turn at once

        turns.release(3)

        calm.settimeout(in_time(10))
        calm.accept()[0].close()
        turns.release(1000)


class NameServer:
    """Says nothing of other names than "calm" before ``let_go`` is set. ``asked``: names, in order."""

    def __init__(self):
        self.asked = []
        self.let_go = threading.Event()

    def __call__(self, host, port, *_):
        self.asked.append(host)
        if host != "calm":
            self.let_go.wait(in_time(60))
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]


@pytest.fixture
def names(monkeypatch):
    """Whom links ask for names, and none of them is slow."""
    names = NameServer()
    monkeypatch.setattr(Lookups.__init__, "__defaults__", (names, AT_ONCE, in_time(60), in_time(60)))
    yield names
    names.let_go.set()


def test_name_of_one_users_shovel_is_looked_up_while_those_of_another_hold_all_places(names, broker):
    """On the commit before 518e9987 it is not asked for: 16 others are, and none is answered."""
    for number in range(2 * AT_ONCE):
        put_shovel(broker, "greedy", f"s{number}", f"amqp://silent{number}")
    wait_until(lambda: len(names.asked) == AT_ONCE)

    with socket.create_server(("127.0.0.1", 0)) as peer:
        put_shovel(broker, "calm", "calm", f"amqp://calm:{peer.getsockname()[1]}")

        peer.settimeout(in_time(10))
        peer.accept()[0].close()
    names.let_go.set()


@pytest.fixture
def shares(monkeypatch):
    """Links keep a quarter of what they may, so that the test has less to move."""
    monkeypatch.setattr(MemoryBudget.__init__, "__defaults__", (16 * MIB, 2 * MIB))


def take_nothing(peer):
    """A target that confirms no message."""
    peer.as_destination()
    peer.await_end()


def kept(broker, user):
    """Octets that the user's shovels have sent on and that are not confirmed, by their page."""
    return sum(
        shovel.get("unconfirmed", 0) * LEAST_OCTETS
        for shovel in requests.get(
            f"{broker.http_url.rstrip('/')}/api/shovels", auth=("guest", "guest"), timeout=in_time(60)).json()
        if shovel["name"].startswith(user))


def test_shovel_of_one_user_keeps_more_than_the_least_while_those_of_another_keep_all(shares, broker):
    """On the commit before 91b2651d it keeps the least: one of these messages."""
    with Connection(broker.amqp_url) as connection, HostileBroker(take_nothing) as target:
        channel = connection.channel(1)
        for user, count in (("greedy", 400), ("calm", 100)):
            channel.queue_declare(user)
            fill(channel, user, count, body=b"%d" + bytes(LEAST_OCTETS))
        for number in range(8 * GREEDY):
            # One after the other: each may keep a part of what is left, so together they stop earlier.
            put_shovel(broker, "greedy", f"greedy{number:02}", target=target.url)
            wait_until(lambda name=f"greedy{number:02}": kept(broker, name) > 0)
            if kept(broker, "greedy") >= 16 * MIB:
                break
        wait_until(lambda: kept(broker, "greedy") >= 16 * MIB, what=lambda: kept(broker, "greedy"))

        put_shovel(broker, "calm", "calm", target=target.url)

        wait_until(
            lambda: kept(broker, "calm") >= 4 * LEAST_OCTETS, in_time(10), what=lambda: kept(broker, "calm"))
