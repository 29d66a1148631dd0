"""Shovels between broker processes: what is set by whatever tool moves messages, through restarts and kills
of every broker that takes part.
"""
import json
import random
import re
import subprocess
import sys
from contextlib import ExitStack

import pytest

from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from tests.support.command import run_module
from tests.support.federated import LOGIN, bodies, start_gomq
from tests.support.ports import reserve
from tests.support.programs import find
from tests.support.waiting import in_time, wait_until

COUNT = 200
# Between attempts: short, for brokers come back within a second.
DELAY_S = 0.1
PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Three brokers that keep their ports: where messages are, where the shovel is, where they go."""
    with ExitStack() as stack:
        started = []
        for name in ("from", "by", "to"):
            peer = start_gomq(
                tmp_path_factory.mktemp(name) / "data", name, port=reserve(), http_port=reserve())
            stack.callback(lambda process=peer.process: process.is_running and process.stop())
            started.append(peer)
        yield started


@pytest.fixture
def vhost(peers, request):
    """A virtual host of the test's own, in each broker."""
    name = re.sub(r"\W", "-", request.node.name.removeprefix("test_"))[:100]
    for peer in peers:
        if not peer.process.is_running:
            peer.process.start()
        peer.make_vhost(name)
    yield name
    for peer in peers:
        peer.hang_up()
        peer.call("DELETE", "vhosts", name)


def value_of(source, target, vhost, **more):
    """A shovel from queue ``a`` of one broker to queue ``b`` of another; further keys with underscores."""
    value = {
        "src-uri": source.uri(vhost), "src-queue": "a", "dest-uri": target.uri(vhost), "dest-queue": "b",
        "reconnect-delay": DELAY_S, **{key.replace("_", "-"): item for key, item in more.items()}}
    return {key: item for key, item in value.items() if item is not None}


def put(peer, vhost, value, name="s"):
    """Set a shovel over the API."""
    peer.call("PUT", "parameters", "shovel", vhost, name, value=value)


def shovel(peer, vhost, name="s"):
    """What the API shows of it."""
    return peer.call("GET", "shovels", vhost, name)


def wait_for(peer, vhost, name="s", **fields):
    """The shovel once each of the fields shown of it is as said."""
    def is_so():
        one = shovel(peer, vhost, name)
        return one if all(one.get(key) == value for key, value in fields.items()) else None
    return wait_until(is_so, what=lambda: f"{fields} in {shovel(peer, vhost, name)}")


def publish(peer, vhost, numbers, queue="a", exchange=""):
    """Publish numbered messages, confirmed."""
    with Connection(peer.uri(vhost)) as connection:
        channel = connection.channel()
        if not exchange:
            channel.queue_declare(queue, durable=True)
        channel.confirm_select()
        channel.publish_many((exchange, queue, b"%d" % number, PERSISTENT) for number in numbers)
        assert channel.wait_for_confirms()


def arrived(peer, vhost, count, queue="b"):
    """Numbers of so many messages that arrived, in order."""
    channel = peer.channel(vhost)
    channel.queue_declare(queue, durable=True)
    return [int(body) for _, _, body in bodies(channel, queue, count)]


def by_http(peer, vhost, value):
    put(peer, vhost, value)


def by_rabbitmqadmin(peer, vhost, value):
    user, password = LOGIN
    subprocess.run(
        [
            sys.executable, find("rabbitmqadmin"), "-H", "127.0.0.1", "-P", peer.http_url.rpartition(":")[2],
            "-u", user, "-p", password, "-V", vhost, "declare", "parameter", "component=shovel", "name=s",
            f"value={json.dumps(value)}",
        ], check=True, capture_output=True, timeout=in_time(60))


def by_ctl(peer, vhost, value):
    ctl(peer, vhost, "add_shovel", "s", *(
        part for key, item in value.items() for part in (f"--{key}", str(item))))


def by_rabbitmqctl(peer, vhost, value):
    ctl(peer, vhost, "set_parameter", "shovel", "s", json.dumps(value))


def ctl(peer, vhost, *arguments):
    """What a command of gomq-py-ctl prints."""
    finished = run_module("gomq_py.ctl", "--uri", peer.http_url, "-p", vhost, *arguments)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("set_by", [
    by_http, by_ctl, by_rabbitmqctl,
    pytest.param(by_rabbitmqadmin, marks=pytest.mark.needs_program("rabbitmqadmin")),
])
def test_a_shovel_moves_messages_of_one_broker_to_another_in_order(peers, vhost, set_by):
    source, shoveller, target = peers
    publish(source, vhost, range(COUNT))

    set_by(shoveller, vhost, value_of(source, target, vhost))

    assert arrived(target, vhost, COUNT) == list(range(COUNT))
    one = wait_for(shoveller, vhost, state="running", moved=COUNT, unconfirmed=0, error="")
    assert source.ready(vhost, "a") == 0
    assert (one["src_uri"], one["dest_uri"]) == (
        f"amqp://127.0.0.1:{source.process.port}/{vhost}", f"amqp://127.0.0.1:{target.process.port}/{vhost}")


def test_an_end_in_the_shovels_own_broker_needs_no_port(peers, vhost):
    _, shoveller, target = peers
    publish(shoveller, vhost, range(COUNT))

    put(shoveller, vhost, value_of(shoveller, target, vhost, src_uri="amqp://"))

    assert arrived(target, vhost, COUNT) == list(range(COUNT))


@pytest.mark.parametrize("which, end", [(0, "source"), (2, "destination")])
def test_a_shovel_goes_on_when_a_broker_is_back(peers, vhost, which, end):
    source, shoveller, target = peers
    put(shoveller, vhost, value_of(source, target, vhost))
    publish(source, vhost, range(10))
    assert arrived(target, vhost, 10) == list(range(10))
    for peer in peers:
        peer.hang_up()

    peers[which].process.stop()
    away = wait_until(
        lambda: shovel(shoveller, vhost) if shovel(shoveller, vhost)["state"] == "starting" else None)
    peers[which].process.start()
    publish(source, vhost, range(10, 20))

    assert away["error"].startswith(f"{end}: ")
    assert arrived(target, vhost, 10) == list(range(10, 20))
    wait_for(shoveller, vhost, state="running", error="")


def test_three_kills_of_the_shovels_own_broker_under_load_lose_nothing(peers, vhost):
    """Seed 13: the moments are chosen by how much has arrived."""
    source, shoveller, target = peers
    count, chance = 9000, random.Random(13)
    put(shoveller, vhost, value_of(source, target, vhost, src_prefetch_count=100))
    numbers = iter(range(count))

    for kill in range(3):
        publish(source, vhost, [next(numbers) for _ in range(count // 3)])
        least = kill * count // 3 + chance.randrange(count // 6)
        wait_until(lambda least=least: target.ready(vhost, "b") > least)
        shoveller.process.kill()
        shoveller.process.start()

    wait_until(lambda: source.ready(vhost, "a") == 0)
    wait_for(shoveller, vhost, state="running", unconfirmed=0)
    wait_until(lambda: {one["messages"] for one in source.call("GET", "queues", vhost)} == {0})
    got = arrived(target, vhost, target.ready(vhost, "b"))
    assert set(got) == set(range(count))
    firsts = list(dict.fromkeys(got))
    assert firsts == sorted(firsts)
