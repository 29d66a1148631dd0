"""Names of brokers that nobody has named: federation works between two of one machine, and finds its queue
upstream again after the machine was given another name.
"""
import os
from contextlib import ExitStack

import pytest

from tests.support.command import ROOT
from tests.support.federated import bodies, start_gomq

VHOST = "/"


@pytest.fixture
def peers(tmp_path):
    """Two brokers with their default names: (upstream, downstream)."""
    with ExitStack() as stack:
        started = []
        for folder in ("up", "down"):
            started.append(start_gomq(tmp_path / folder, ""))
            stack.callback(started[-1].process.stop)
            stack.callback(started[-1].hang_up)
        yield started


def federate(up, down):
    """The upstream's queue of the link, and a channel downstream with a queue for what comes."""
    channel = down.channel(VHOST)
    channel.exchange_declare("fed.x", "topic", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "fed.x", "#")
    down.federate(VHOST, up)
    down.wait_for_links(VHOST, 1)
    return [one["name"] for one in up.call("GET", "queues", VHOST)], channel


def test_two_brokers_of_one_machine_federate_with_their_default_names(peers):
    up, down = peers
    queues, channel = federate(up, down)

    up.channel(VHOST).basic_publish("fed.x", "a", b"body")
    (_, properties, body), = bodies(channel, "q", 1)

    assert up.name != down.name
    assert queues == [f"federation: fed.x -> {down.name}"]
    assert (body, properties.headers["x-received-from"][0]["cluster-name"]) == (b"body", up.name)


def test_messages_that_waited_upstream_come_after_the_machine_was_renamed(peers, tmp_path):
    up, down = peers
    queues, _ = federate(up, down)
    down.hang_up()
    down.process.stop()
    upstream = up.channel(VHOST)
    upstream.confirm_delivery()
    for number in range(5):
        upstream.basic_publish("fed.x", "a", b"%d" % number)
    (tmp_path / "renamed").mkdir()
    (tmp_path / "renamed" / "sitecustomize.py").write_text(
        "import socket\nsocket.gethostname = lambda: 'renamed'\n")

    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "renamed"), str(ROOT)])}
    renamed = start_gomq(tmp_path / "down", "", environment=environment)
    try:
        got = bodies(renamed.channel(VHOST), "q", 5)

        assert [body for _, _, body in got] == [b"0", b"1", b"2", b"3", b"4"]
        assert renamed.call("GET", "overview")["node"] == "gomq@renamed"
        assert renamed.name == down.name
        assert [one["name"] for one in up.call("GET", "queues", VHOST)] == queues
    finally:
        renamed.hang_up()
        renamed.process.stop()
