"""A broker is killed while a message at QoS 2 that one session has waits for the files of another: sent
again, it comes to each of them once.

A kill leaves the system's cache, so that a copy of the folder is what it leaves.
"""
import shutil
from functools import partial

import pytest

import gomq_py
from gomq_py import node
from gomq_py.client.mqtt import MQTTClient, Session
from gomq_py.mqtt.wire.constants import MQTT_3_1_1, MQTT_5
from tests.embedding.test_slow_disk import HeldFiles
from tests.support.waiting import in_time

BROKER = partial(gomq_py.Broker, mqtt_port=0, segment_size=65536)


class Client:
    """One whose session outlives its connections."""

    def __init__(self, name, version):
        self.name, self.version, self.session = name, version, Session()

    def connect(self, broker):
        properties = {"session_expiry_interval": 3600} if self.version == MQTT_5 else None
        self.client = MQTTClient(
            broker.mqtt_url, version=self.version, client_identifier=self.name, clean_start=False,
            session=self.session, timeout_s=in_time(60), properties=properties)
        return self.client

    def next(self):
        return bytes(self.client.next_message(in_time(60)).payload)

    def left(self):
        """What it gets before a message that it publishes last."""
        self.client.publish(f"only/{self.name}", b"last", 2)
        return list(iter(self.next, b"last"))


def in_order(broker, clients):
    """Two that subscribe to "t", in the order in which they are given messages."""
    def queues(launched):
        vhost = launched.broker.vhosts["/"]
        return [queue.name for queue in vhost.route(vhost.exchanges["amq.topic"], "t")]

    first, *_ = broker.call(queues)
    return sorted(clients, key=lambda client: not first.endswith(client.name))


@pytest.fixture
def held(tmp_path, monkeypatch):
    """A broker, and its files."""
    files = []
    monkeypatch.setattr(node, "Files", lambda listeners: files.append(HeldFiles(listeners)) or files[-1])
    with BROKER(tmp_path / "data") as broker:
        broker.call(lambda _: files[0].begin())
        yield broker, files[0]
        files[0].let_go()


@pytest.mark.parametrize("version", [MQTT_3_1_1, MQTT_5])
def test_session_that_has_what_another_waits_for_at_qos_2_has_it_once(tmp_path, held, version):
    """On the commit before d49d7e44 the first has it twice."""
    broker, files = held
    publisher, one, two = everybody = [Client(name, version) for name in ("publisher", "one", "two")]
    for each in everybody:
        each.connect(broker).subscribe(f"only/{each.name}", *["t"] * (each is not publisher), qos=2)
    first, second = in_order(broker, [one, two])
    assert first.left() == publisher.left() == []  # both have files
    files.hold("make")
    publisher.client.begin_publish("t", b"x", 2)
    assert files.is_held.wait(in_time(60))
    assert first.next() == b"x"

    broker.call(lambda _: shutil.copytree(tmp_path / "data", tmp_path / "killed"))
    for each in everybody:
        each.client.abort()

    with BROKER(tmp_path / "killed") as again:
        assert all(each.connect(again).connack.session_present for each in everybody)
        publisher.client.wait_acknowledged()
        assert (first.left(), second.left()) == ([], [b"x"])
        for each in everybody:
            each.client.close()
