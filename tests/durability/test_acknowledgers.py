"""Another place that keeps what the broker keeps: whatever is promised waits for it, and what it refuses is
refused. Housekeeping does not wait.
"""
import os

import gevent
import pytest

from gomq_py.amqp.wire.methods import (
    BasicAck, BasicGet, BasicGetOk, BasicNack, ChannelOpen, ChannelOpenOk, ConfirmSelect, ConfirmSelectOk,
    ConnectionClose, ExchangeBind, ExchangeBindOk, ExchangeDeclare, ExchangeDeclareOk, ExchangeDelete,
    ExchangeDeleteOk, ExchangeUnbind, ExchangeUnbindOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk,
    QueueDelete, QueueDeleteOk, QueuePurge, QueuePurgeOk, QueueUnbind, QueueUnbindOk, TxCommit, TxCommitOk,
    TxSelect, TxSelectOk,
)
from gomq_py.hub.scheduler import unix_ms
from gomq_py.broker.transfer.moves import Move, to_queue
from gomq_py.content.properties import Properties
from gomq_py.storage.disk.files import Files
from gomq_py.storage.message import Message
from tests.durability.test_http_cuts import Life
from tests.support.acknowledger import HandAcknowledger
from tests.support.door import Door
from tests.support.node import Node
from tests.support.waiting import wait_until

PERSISTENT = Properties(delivery_mode=2).encode()
GONE = OSError("the other place is gone")


def wait(condition):
    return wait_until(condition, sleep=gevent.sleep)


@pytest.fixture(params=[True, False], ids=["sync", "no-sync"])
def door(request, tmp_path):
    with Door(tmp_path / "data", sync=request.param) as door:
        yield door


@pytest.fixture
def client(door):
    """A client with durable things to change: queue ``q``, stream ``s``, exchanges ``x`` and ``y``,
    which are bound.
    """
    client = door.client()
    client.call(QueueDeclare(queue="q", durable=True), QueueDeclareOk)
    client.call(QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk)
    for name in "xy":
        client.call(ExchangeDeclare(exchange=name, type="fanout", durable=True), ExchangeDeclareOk)
    client.call(QueueBind(queue="q", exchange="x"), QueueBindOk)
    client.call(ExchangeBind(destination="y", source="x"), ExchangeBindOk)
    return client


def follow(broker):
    """An acknowledger of the broker's from now on."""
    other = HandAcknowledger()
    broker.durability.add(other)
    return other


def finish(other, error=None):
    """Let the acknowledger answer, once it is asked."""
    wait(lambda: other.waiting)
    other.finish(error)


def test_confirm_waits_for_it(door, client):
    client.call(ConfirmSelect(), ConfirmSelectOk)
    other = follow(door.broker)

    client.publish("q", properties=PERSISTENT)
    client.expect_silence()
    finish(other)

    assert client.expect(BasicAck).delivery_tag == 1


def test_publish_that_it_refuses_is_nacked(door, client):
    client.call(ConfirmSelect(), ConfirmSelectOk)
    other = follow(door.broker)

    client.publish("q", properties=PERSISTENT)
    finish(other, GONE)

    assert client.expect(BasicNack).delivery_tag == 1


def test_channel_that_confirmed_before_it_came_waits_for_it(door, client):
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish("q", properties=PERSISTENT)
    client.expect(BasicAck)
    other = follow(door.broker)

    client.publish("q", properties=PERSISTENT)
    client.expect_silence()
    finish(other)

    assert client.expect(BasicAck).delivery_tag == 2


def test_message_that_needs_no_disk_waits_for_nobody(door, client):
    client.call(ConfirmSelect(), ConfirmSelectOk)
    other = follow(door.broker)

    client.publish("q")

    assert client.expect(BasicAck).delivery_tag == 1
    assert not other.waiting


CHANGES = [
    (QueueDeclare(queue="q2", durable=True), QueueDeclareOk),
    (ExchangeDeclare(exchange="x2", type="topic", durable=True), ExchangeDeclareOk),
    (QueueBind(queue="q", exchange="y"), QueueBindOk),
    (QueueUnbind(queue="q", exchange="x"), QueueUnbindOk),
    (ExchangeBind(destination="x", source="y"), ExchangeBindOk),
    (ExchangeUnbind(destination="y", source="x"), ExchangeUnbindOk),
    (QueuePurge(queue="q"), QueuePurgeOk),
    (QueuePurge(queue="s"), QueuePurgeOk),
    (QueueDelete(queue="q"), QueueDeleteOk),
    (ExchangeDelete(exchange="x"), ExchangeDeleteOk),
]


@pytest.mark.parametrize(("method", "answer"), CHANGES, ids=lambda value: getattr(value, "NAME", ""))
def test_answer_to_a_durable_change_waits_for_it(door, client, method, answer):
    other = follow(door.broker)

    client.send_method(method)
    client.expect_silence()
    finish(other)

    client.expect(answer)


def test_change_that_it_refuses_closes_the_connection(door, client):
    other = follow(door.broker)

    client.send_method(QueueDeclare(queue="q2", durable=True))
    finish(other, GONE)

    text = (
        "INTERNAL_ERROR - the disk refused a change: the other place does not keep it: "
        "the other place is gone"
    )
    client.expect_error(ConnectionClose, 541, text, 0)


@pytest.fixture
def committing(door, client):
    """The client has published to ``q`` in a transaction, and acked a message of ``source`` in it."""
    client.call(QueueDeclare(queue="source", durable=True), QueueDeclareOk)
    client.publish("source", properties=PERSISTENT)
    client.call(TxSelect(), TxSelectOk)
    client.send_method(BasicGet(queue="source"))
    client.expect_message(BasicGetOk)
    client.publish("q", properties=PERSISTENT)
    client.send_method(BasicAck(delivery_tag=1))
    return client


def test_transaction_settles_when_it_has_its_messages_and_is_answered_when_it_has_its_acks(door, committing):
    other = follow(door.broker)
    source = door.queue("source")

    committing.send_method(TxCommit())
    committing.expect_silence()
    assert source.unacked_count == 1
    finish(other)
    committing.expect_silence()
    assert source.unacked_count == 0
    finish(other)

    committing.expect(TxCommitOk)


def test_transaction_that_it_refuses_gives_back_what_it_was_to_settle(door, committing):
    other = follow(door.broker)

    committing.send_method(TxCommit())
    finish(other, GONE)

    committing.expect(ConnectionClose, 0)
    assert door.queue("source").ready_count == 1


def test_one_channel_that_waits_holds_back_no_other(door, client):
    client.call(ChannelOpen(), ChannelOpenOk, 2)
    follow(door.broker)
    client.send_method(QueueDeclare(queue="q2", durable=True))

    client.call(QueueDeclare(queue="q3"), QueueDeclareOk, 2)


# over HTTP

REQUESTS = [
    ("PUT", "queues/v/new", {"durable": True}),
    ("DELETE", "queues/v/q/contents", None),
    ("PUT", "users/u", {"password": "p", "tags": ""}),
    ("POST", "exchanges/v/amq.default/publish",
     {"properties": {"delivery_mode": 2}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}),
]


@pytest.fixture
def life(tmp_path):
    life = Life(tmp_path / "data", Files())
    life.broker.create_vhost("v", creator="guest")
    assert life.ask("PUT", "queues/v/q", {"durable": True}).status_code == 201
    yield life
    life.stop()


@pytest.mark.parametrize("error", [None, GONE])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request_: request_[1])
def test_answer_over_http_waits_for_it(life, request_, error):
    other = follow(life.broker)
    asked = gevent.spawn(life.ask, *request_)

    wait(lambda: other.waiting)
    assert not asked.ready()
    while not asked.ready():  # a purge waits for its own sake, too
        other.finish(error)
        gevent.sleep(0)

    assert asked.get().status_code == (500 if error else asked.value.status_code)
    assert error or asked.value.status_code < 300


# what moves

@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data")
    yield node
    node.stop()


def dead_letter(node):
    """A message dies of ``source``. Returns how many are there, in all."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target", "x-max-length": 1}
    queue, _ = node.vhost.declare_queue("source", durable=True, arguments=arguments)
    node.publish("", "source", persistent=True)
    node.publish("", "source", persistent=True)
    return lambda: queue.store.ready_count + queue.store.unacked_count - 1


def release_delayed(node):
    """A delayed message becomes due."""
    exchange = node.vhost.declare_exchange(
        "x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    node.vhost.bindings.bind_queue("target", "x", "")
    headers = {"x-delay": 1}
    properties = Properties(headers=headers, delivery_mode=2).encode()
    message = Message()
    message.assign(b"x", b"", properties, b"x", unix_ms(), persistent=True)
    for destination in node.vhost.route(exchange, "", headers):
        destination.publish(message)
    store = exchange.delayed_store.store
    return lambda: store.ready_count + store.unacked_count


def move(node):
    """An operator moves a message."""
    queue, _ = node.vhost.declare_queue("source", durable=True)
    node.publish("", "source", persistent=True)
    Move(
        queue, to_queue(node.vhost.queue("target")), node.broker.durability, node.broker.scheduler,
        lambda *end: None,
    ).start()
    return lambda: queue.store.ready_count + queue.store.unacked_count


@pytest.mark.parametrize("way", [dead_letter, release_delayed, move])
def test_message_that_moves_is_dropped_when_it_has_the_copy(node, way):
    node.vhost.declare_queue("target", durable=True)
    other = follow(node.broker)

    left = way(node)
    wait(lambda: other.waiting)
    assert (node.vhost.queue("target").ready_count, left()) == (1, 1)
    finish(other)

    assert left() == 0


@pytest.mark.parametrize("way", [dead_letter, release_delayed, move])
def test_message_that_moves_stays_when_it_refuses_the_copy(node, way):
    node.vhost.declare_queue("target", durable=True)
    other = follow(node.broker)

    left = way(node)
    finish(other, GONE)

    assert left() == 1


def test_broker_stops_though_it_says_nothing_and_what_was_moving_is_in_both_places(tmp_path):
    node = Node(tmp_path / "data")
    node.vhost.declare_queue("target", durable=True)
    other = follow(node.broker)
    move(node)
    wait(lambda: other.waiting)

    node.stop()

    again = Node(tmp_path / "data")
    assert [again.vhost.queue(name).ready_count for name in ("source", "target")] == [1, 1]
    again.stop()


# housekeeping

def test_files_of_a_deleted_queue_go_without_it(node):
    node.vhost.declare_queue("q", durable=True)
    node.publish("", "q", persistent=True)
    folder = node.vhost.queue("q").store.folder
    follow(node.broker)

    node.vhost.delete_queue("q")

    wait(lambda: not os.path.exists(folder))


def test_definitions_log_is_compacted_without_it(tmp_path):
    node = Node(tmp_path / "data", max_deleted_definitions=20)
    follow(node.broker)

    for number in range(200):
        node.vhost.declare_queue(f"q{number}", durable=True)
        node.vhost.delete_queue(f"q{number}")
        gevent.sleep(0)

    def is_compacted():
        # A change begins the compaction, once fewer folders wait to be removed: each of them has a record.
        node.vhost.declare_queue("last", durable=True)
        node.vhost.delete_queue("last")
        return node.broker._log.record_count < 400 and not node.broker._log.is_compacting
    wait(is_compacted)
    node.stop()


def test_emptied_segments_are_used_again_without_it(tmp_path):
    node = Node(tmp_path / "data", segment_size=65536)
    node.vhost.declare_queue("q", durable=True)
    follow(node.broker)

    for _ in range(20):
        for _ in range(8):
            node.publish("", "q", bytes(16000), persistent=True)
        node.vhost.queue("q").purge()
        node.committer.wait()

    names = [name for _, _, names in os.walk(tmp_path / "data") for name in names if name.startswith("msgs")]
    assert len(names) < 10
    node.stop()
