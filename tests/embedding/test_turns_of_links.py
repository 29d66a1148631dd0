"""Shovels of one user that wait for their turn to connect do not come before another's."""
import socket
import threading
from functools import partial

import gevent
import pytest
import requests

from gomq_py import Broker
from gomq_py.links.turns import Turns, turns_of
from tests.support.waiting import in_time, wait_until

GREEDY = 12


@pytest.fixture
def turns(monkeypatch):
    """Links have so many turns as it is released."""
    turns = threading.Semaphore(0)
    pause = partial(wait_until, partial(turns.acquire, blocking=False), in_time(60), sleep=gevent.sleep)
    monkeypatch.setattr(Turns, "_pause", staticmethod(pause))
    return turns


@pytest.fixture
def broker(tmp_path, turns):
    with Broker(tmp_path, http_port=0, links_amqp_hosts_allowed="127.0.0.0/8") as broker:
        yield broker
        turns.release(1000)


def put(broker, path, value, user="guest"):
    requests.put(
        f"{broker.http_url.rstrip('/')}/api/{path}", json=value, auth=(user, user), timeout=in_time(60)
    ).raise_for_status()


def waiting(launched):
    return sum(len(row or [row]) for row in turns_of(launched.hub)._waiting.values())


def test_shovel_of_one_user_has_its_turn_before_all_of_another_have_had_theirs(broker, turns):
    """On the commit before 91b2651d it does not connect: three others have the turns."""
    for user in ("greedy", "calm"):
        put(broker, f"users/{user}", {"password": user, "tags": "policymaker"})
        put(broker, f"permissions/%2F/{user}", {"configure": ".*", "write": ".*", "read": ".*"})
    with socket.create_server(("127.0.0.1", 0), backlog=100) as all_others, socket.create_server(
            ("127.0.0.1", 0)) as calm:
        for number in range(GREEDY + 1):
            user, peer = ("greedy", all_others) if number < GREEDY else ("calm", calm)
            put(broker, f"parameters/shovel/%2F/s{number}", {"value": {
                "src-uri": f"amqp://127.0.0.1:{peer.getsockname()[1]}", "src-queue": "a",
                "dest-uri": "amqp://", "dest-queue": "b"}}, user)
        wait_until(lambda: broker.call(waiting) == GREEDY)  # the first had its turn at once

        turns.release(3)

        calm.settimeout(in_time(10))
        calm.accept()[0].close()
