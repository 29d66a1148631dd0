"""Firehose: while a vhost is traced, what its clients publish and get is published once more,
with RabbitMQ's keys and headers.
"""
import gevent
import pytest

from gomq_py.amqp.server import delivery
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, BasicNack, BasicQos,
    BasicQosOk, ConfirmSelect, ConfirmSelectOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk,
    TxCommit, TxCommitOk, TxSelect, TxSelectOk,
)
from gomq_py.broker.signals import tracing
from gomq_py.broker.signals.events import CUT
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import SliceClock
from gomq_py.storage.message import Message
from tests.support.clocks import StepClock
from tests.support.door import Door
from tests.support.waiting import wait_until


@pytest.fixture
def door(tmp_path):
    with Door(tmp_path / "data") as door:
        yield door


@pytest.fixture
def client(door):
    return door.client()


@pytest.fixture
def traced(door, client):
    """A client of a traced vhost with the queues q and trace."""
    for name in ("q", "trace"):
        client.call(QueueDeclare(queue=name), QueueDeclareOk)
    client.call(QueueBind(queue="trace", exchange="amq.rabbitmq.trace", routing_key="#"), QueueBindOk)
    door.vhost.set_tracing(True)
    return client


def traces(door):
    """All there is, as (key, headers, body)."""
    found = []
    while True:
        message = Message()
        if not door.queue("trace").get(message, True):
            return found
        found.append((
            message.get_routing_key().decode(), Properties.decode(message.get_properties()).headers,
            message.get_body(),
        ))


def test_published_message_is_told_with_where_it_went(door, traced):
    properties = Properties(
        content_type="text/plain", headers={"k": [1, {"n": True}], "CC": ["nowhere"]}, delivery_mode=2
    )
    traced.publish("q", b"body", properties=properties.encode())
    traced.call(QueueDeclare(queue="q"), QueueDeclareOk)

    ((key, headers, body),) = traces(door)
    assert (key, body) == ("publish.", b"body")
    node = headers.pop("node")
    assert node.startswith("gomq@")
    assert headers == {
        "exchange_name": "", "routing_keys": ["q", "nowhere"], "properties": properties.as_dict(),
        "vhost": "/", "connection": door.connection().name,
        "channel": 1, "user": "guest", "routed_queues": ["q"],
    }


def test_key_names_the_exchange_and_unroutable_messages_are_told_too(door, traced):
    traced.publish("nowhere", b"lost", exchange="amq.topic")
    traced.call(QueueDeclare(queue="q"), QueueDeclareOk)

    ((key, headers, _),) = traces(door)
    assert (key, headers["routed_queues"]) == ("publish.amq.topic", [])


@pytest.mark.parametrize("size", [3, 300_000])
def test_delivered_message_is_told(door, traced, size):
    traced.publish("q", bytes(size))
    traced.call(BasicConsume(queue="q", consumer_tag="c"), BasicConsumeOk)
    first = traced.expect_message(BasicDeliver)
    assert len(first[2]) == size
    traced.send_method(BasicNack(delivery_tag=1, requeue=True))
    assert traced.expect_message(BasicDeliver)[0].redelivered

    told = traces(door)[1:]
    assert [(key, headers["redelivered"], len(body)) for key, headers, body in told] == [
        ("deliver.q", 0, size), ("deliver.q", 1, size)
    ]
    assert "routed_queues" not in told[0][1]


def test_many_deliveries_are_told_in_order(door, traced):
    for number in range(50):
        traced.publish("q", b"%d" % number)
    traced.call(BasicConsume(queue="q", no_ack=True), BasicConsumeOk)
    bodies = [traced.expect_message(BasicDeliver)[2] for _ in range(50)]

    assert bodies == [b"%d" % number for number in range(50)]
    assert [body for key, _, body in traces(door) if key == "deliver.q"] == bodies


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "stream"}])
def test_turn_of_traced_deliveries_ends_with_its_time(door, traced, monkeypatch, arguments):
    """A slice ends with its third message: what headers cost to copy is the same as with them."""
    slices = []

    def clock():
        slices.append(None)
        return SliceClock(2.5, clock=StepClock(1))

    monkeypatch.setattr(delivery, "SliceClock", clock)
    traced.call(QueueDeclare(queue="s", durable=True, arguments=arguments), QueueDeclareOk)
    for number in range(30):
        traced.publish("s", b"%d" % number)
    traced.call(BasicQos(prefetch_count=100), BasicQosOk)
    traced.call(
        BasicConsume(queue="s", arguments={"x-stream-offset": "first"} if arguments else {}), BasicConsumeOk
    )
    bodies = [traced.expect_message(BasicDeliver)[2] for _ in range(30)]

    assert bodies == [b"%d" % number for number in range(30)]
    assert [body for key, _, body in traces(door) if key == "deliver.s"] == bodies
    assert len(slices) >= 10


@pytest.mark.parametrize("size", [3, 300_000])
def test_delivery_of_a_stream_is_told_with_its_offset(door, traced, size):
    traced.call(QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk)
    for number in range(3):
        traced.publish("s", bytes(size), properties=Properties(headers={"n": number}).encode())
    traced.call(BasicQos(prefetch_count=2), BasicQosOk)
    traced.call(BasicConsume(queue="s", arguments={"x-stream-offset": 1}), BasicConsumeOk)
    for _ in range(2):
        assert len(traced.expect_message(BasicDeliver)[2]) == size

    told = [
        (headers["properties"]["headers"], headers["redelivered"], len(body))
        for key, headers, body in traces(door) if key == "deliver.s"
    ]
    assert told == [({"n": offset, "x-stream-offset": offset}, 0, size) for offset in (1, 2)]


@pytest.mark.parametrize("no_ack", [True, False])
def test_basic_get_is_told(door, traced, no_ack):
    traced.publish("q", b"body")
    traced.send_method(BasicGet(queue="q", no_ack=no_ack))
    assert traced.expect_message(BasicGetOk)[2] == b"body"

    assert [(key, body) for key, _, body in traces(door)] == [("publish.", b"body"), ("deliver.q", b"body")]


def test_transaction_is_told_when_it_is_committed(door, traced):
    traced.call(TxSelect(), TxSelectOk)
    traced.publish("q", b"later")
    traced.call(QueueDeclare(queue="q"), QueueDeclareOk)
    assert traces(door) == []

    traced.call(TxCommit(), TxCommitOk)
    assert [key for key, _, _ in traces(door)] == ["publish."]


def test_confirms_and_acks_work_while_traced(door, traced):
    traced.call(ConfirmSelect(), ConfirmSelectOk)
    traced.publish("q", b"1")
    assert traced.expect(BasicAck).delivery_tag == 1
    traced.call(BasicConsume(queue="q"), BasicConsumeOk)
    tag = traced.expect_message(BasicDeliver)[0].delivery_tag
    traced.send_method(BasicAck(delivery_tag=tag))
    traced.call(QueueDeclare(queue="q"), QueueDeclareOk)

    assert door.queue("q").unacked_count == 0


def test_consumer_of_traces_is_not_traced(door, traced):
    """Or each delivery would make another one, for ever."""
    traced.call(BasicConsume(queue="trace", no_ack=True), BasicConsumeOk)
    traced.publish("q", b"body")
    assert traced.expect_message(BasicDeliver)[0].routing_key == "publish."

    traced.expect_silence()


def test_trace_ends_when_it_is_switched_off(door, traced):
    door.vhost.set_tracing(False)
    traced.publish("q", b"body")
    traced.call(QueueDeclare(queue="q"), QueueDeclareOk)

    assert traces(door) == []
    (channel,) = door.connection().channels.values()
    assert not channel.slow and not channel.tracing


def test_channels_that_open_later_are_traced_and_gone_connections_forgotten(door, traced):
    other = door.client()
    other.publish("q", b"body")
    other.call(QueueDeclare(queue="q"), QueueDeclareOk)
    assert len(traces(door)) == 1

    assert len(door.vhost._tracing_watchers) == 2
    other.close()
    wait_until(lambda: len(door.vhost._tracing_watchers) == 1, sleep=gevent.sleep)


def test_other_vhosts_are_not_traced(door, traced):
    door.broker.create_vhost("shop", creator="guest")
    other = door.client(virtual_host="shop")
    other.call(QueueDeclare(queue="q"), QueueDeclareOk)
    other.publish("q", b"body")
    other.call(QueueDeclare(queue="q"), QueueDeclareOk)

    assert traces(door) == []


def test_copy_of_headers_as_deep_as_the_wire_allows_can_be_read_and_dead_lettered(door, traced):
    """They lie two levels deeper in the copy: what no client could read any more is cut there."""
    traced.call(QueueDeclare(queue="dead"), QueueDeclareOk)
    deep = {"a": {}}
    for _ in range(31):
        deep = {"a": deep}

    traced.publish("q", b"deep", properties=Properties(headers=deep).encode())
    traced.call(QueueDeclare(queue="q"), QueueDeclareOk)

    (key, headers, body), = traces(door)
    level, depth = headers["properties"]["headers"], 0
    while isinstance(level, dict):
        level, depth = level["a"], depth + 1
    assert (key, body, level, depth) == ("publish.", b"deep", CUT, 31)


def test_message_whose_copy_cannot_be_made_is_published_all_the_same(door, traced, monkeypatch, caplog):
    monkeypatch.setattr(tracing, "node_name", lambda: object())

    traced.publish("q", b"body")
    traced.call(QueueDeclare(queue="q"), QueueDeclareOk)

    assert door.queue("q").ready_count == 1 and traces(door) == []
    assert "vhost '/': a message is not traced: its copy cannot be made" in caplog.text
