"""Roles of a node: a follower holds a folder that somebody else keeps like the leader's,
and is promoted without loss.
"""
import os

import gevent
import pytest
from gevent import socket

from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, BasicQos, BasicQosOk,
    ChannelOpen, ChannelOpenOk, ConfirmSelect, ConfirmSelectOk, ExchangeDeclare, ExchangeDeclareOk, QueueBind,
    QueueBindOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.content.properties import Properties
from gomq_py.hub.context import Hub
from gomq_py.node import FOLLOWER, LEADER, Node
from gomq_py.storage.disk.data_dir import DataDirError, DataDirLocked
from gomq_py.storage.disk.replication import Replicator
from tests.support.door import Client
from tests.support.mirror import Mirror, folder_content
from tests.support.waiting import wait_until

PERSISTENT = Properties(delivery_mode=2).encode()
STREAM = {"x-queue-type": "stream"}
FROM_THE_FIRST = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
COUNT = 300


class Following(Mirror):
    """A mirror that says when it has what it was told of, until it is cut off."""

    def __init__(self, source, copy):
        super().__init__(source, copy)
        self.is_cut_off = False

    def __getattribute__(self, name):
        if name in TOLD and object.__getattribute__(self, "is_cut_off"):
            return lambda *_: None
        return object.__getattribute__(self, name)

    def when_safe(self, position, callback):
        if not self.is_cut_off:
            callback(None)


TOLD = {name for name in vars(Replicator) if not name.startswith("_")}


@pytest.fixture
def make(tmp_path):
    """A function that makes nodes over folders of this test; all are closed at the end."""
    made = []

    def make_node(name, *replicators):
        settings = Settings.checked(
            data_dir=str(tmp_path / name), amqp_bind="127.0.0.1", amqp_port=0, http_port=-1,
            metrics_http_port=-1, mqtt_port=-1, control_unix_path="", segment_size=65536)
        made.append(Node(settings, replicators))
        return made[-1]

    yield make_node
    for node in made:
        node.close()


@pytest.fixture
def followed(make, tmp_path):
    """(a leader, the mirror that hears it and that it waits for, a follower over the mirror's folder)."""
    (tmp_path / "leader").mkdir()
    mirror = Following(tmp_path / "leader", tmp_path / "follower")
    follower = make("follower")
    follower.follow()
    leader = make("leader", mirror)
    leader.lead()
    leader.durability.add(mirror)
    leader.open_doors()
    yield leader, mirror, follower
    mirror.is_cut_off = True
    leader.durability.remove(mirror)


def client_of(node):
    """A client that is logged in, with channel 1."""
    (listener,) = node.listeners
    client = Client(socket.create_connection(("127.0.0.1", listener.port)))
    client.log_in()
    client.call(ChannelOpen(), ChannelOpenOk)
    return client


def work(client):
    """Definitions, confirmed messages of a queue and a stream, some of them acked,
    and where a reader of the stream goes on.
    """
    client.call(ExchangeDeclare(exchange="x", type="topic", durable=True), ExchangeDeclareOk)
    client.call(QueueDeclare(queue="q", durable=True), QueueDeclareOk)
    client.call(QueueBind(queue="q", exchange="x", routing_key="a.*"), QueueBindOk)
    client.call(QueueDeclare(queue="s", durable=True, arguments=STREAM), QueueDeclareOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    for number in range(COUNT):
        client.publish("a.b", b"%d" % number + bytes(500), exchange="x", properties=PERSISTENT)
        client.publish("s", b"%d" % number, properties=PERSISTENT)
    confirmed = 0
    while confirmed < 2 * COUNT:
        confirmed = client.expect(BasicAck).delivery_tag
    client.call(BasicQos(prefetch_count=10), BasicQosOk)
    client.call(BasicConsume(queue="s", consumer_tag="reader", arguments=FROM_THE_FIRST), BasicConsumeOk)
    for _ in range(10):
        client.expect_message(BasicDeliver)
    client.send_method(BasicAck(delivery_tag=10, multiple=True))


def test_folder_that_is_kept_by_a_mirror_is_promoted_without_loss(followed):
    leader, mirror, follower = followed
    client = client_of(leader)
    work(client)
    stream = leader.broker.vhosts["/"].queues["s"].stream
    wait_until(lambda: stream.offsets.get("reader") is not None, sleep=gevent.sleep)
    leader.durability.wait()
    mirror.is_cut_off = True  # the leader is gone, for all that the follower knows
    client.close()

    follower.promote()

    assert follower.role == LEADER
    vhost = follower.broker.vhosts["/"]
    assert vhost.queues["s"].stream.offsets.get("reader") == stream.offsets.get("reader")
    assert vhost.queues["s"].ready_count == COUNT
    client = client_of(follower)
    bodies = []
    for number in range(COUNT):
        client.send_method(BasicGet(queue="q", no_ack=True))
        bodies.append(client.expect_message(BasicGetOk)[2].rstrip(b"\0"))
    assert bodies == [b"%d" % number for number in range(COUNT)]
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish("a.c", b"new", exchange="x", properties=PERSISTENT)
    client.expect(BasicAck)
    client.close()


def test_follower_neither_reads_nor_changes_the_folder_and_opens_no_door(make, tmp_path, monkeypatch):
    """What stands in its logs and segments could not be read."""
    monkeypatch.setattr(Broker, "recover", lambda self: pytest.fail("it recovers"))
    folder = tmp_path / "data"
    (folder / "queues" / "q").mkdir(parents=True)
    (folder / "schema_version").write_text("1\n")
    for name in ("definitions", "users", "queues/q/msgs.0000000001", "definitions.new.7"):
        (folder / name).write_bytes(os.urandom(5000))
    before = folder_content(folder)
    node = make("data")

    node.follow()

    assert (node.role, node.broker, node.listeners) == (FOLLOWER, None, [])
    assert folder_content(folder) == before
    node.close()
    assert folder_content(folder) == before and node.role is None


def test_folder_that_a_follower_holds_is_nobody_elses(make):
    make("data").follow()

    with pytest.raises(DataDirLocked):
        make("data").lead()


@pytest.mark.parametrize(("name", "content"), [("schema_version", "7\n"), ("letters.txt", "mine")])
def test_folder_of_another_version_or_of_somebody_else_is_not_followed_and_is_left_free(
    make, tmp_path, name, content
):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / name).write_text(content)

    with pytest.raises(DataDirError):
        make("data").follow()

    assert (folder / name).read_text() == content
    if name != "schema_version":
        (folder / name).unlink()
        make("data").follow()


def test_model_is_empty_before_it_recovers(make, tmp_path):
    """Nothing in the folder is read or made by a Broker that has not recovered."""
    leader = make("data")
    leader.lead()
    before = folder_content(tmp_path / "data")

    empty = Broker(leader._data_dir, leader._files, leader.durability, leader.settings, Hub(leader.settings))

    assert not empty.vhosts and not len(empty.users)
    assert folder_content(tmp_path / "data") == before


def test_leader_that_was_closed_leads_again_with_what_it_had(make):
    first = make("data")
    first.lead()
    first.broker.create_vhost("v")
    first.close()
    assert (first.role, first.broker, first.hub, first.amqp) == (None, None, None, None)

    second = make("data")
    second.lead()

    assert "v" in second.broker.vhosts
