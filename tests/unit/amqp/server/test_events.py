"""Events of the AMQP door: logins, connections, channels and consumers,
and on whose behalf things are done.
"""
import gevent
import pytest

from gomq_py.amqp.wire.methods import (
    BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicQos, BasicQosOk, ChannelClose,
    ChannelCloseOk, ChannelOpen, ChannelOpenOk, ConnectionClose, ConnectionCloseOk, QueueDeclare,
    QueueDeclareOk,
)
from gomq_py.broker.signals import events
from gomq_py.content.properties import Properties
from gomq_py.storage.message import Message
from tests.support.door import Door
from tests.support.waiting import wait_until


@pytest.fixture
def door(tmp_path):
    with Door(tmp_path, event_exchange=True) as door:
        door.vhost.declare_queue("told")
        door.vhost.bindings.bind_queue("told", events.NAME, "connection.*")
        door.vhost.bindings.bind_queue("told", events.NAME, "channel.*")
        door.vhost.bindings.bind_queue("told", events.NAME, "consumer.*")
        door.vhost.bindings.bind_queue("told", events.NAME, "user.#")
        yield door


def told(door, count):
    """The next events as (key, headers)."""
    queue = door.queue("told")
    wait_until(
        lambda: queue.ready_count >= count, what=lambda: f"{queue.ready_count} events", sleep=gevent.sleep
    )
    found = []
    for _ in range(count):
        message = Message()
        assert queue.get(message, True)
        found.append(
            (message.get_routing_key().decode(), Properties.decode(message.get_properties()).headers)
        )
    assert queue.ready_count == 0
    return found


def test_life_of_a_connection_is_told(door):
    client = door.client()
    (login, seen), (opened, connection), (_, channel) = told(door, 3)

    assert (login, seen["name"], seen["connection_type"]) == (
        "user.authentication.success", "guest", "network"
    )
    assert opened == "connection.created"
    assert {
        key: connection[key]
        for key in ("name", "user", "vhost", "protocol", "frame_max", "user_who_performed_action")
    } == {
        "name": door.connection().name, "user": "guest", "vhost": "/", "protocol": "{0,9,1}",
        "frame_max": 131072, "user_who_performed_action": "guest"}
    assert connection["client_properties"]["product"] == "test"
    assert (channel["number"], channel["connection"], channel["name"]) == (
        1, connection["name"], f"{connection['name']} (1)"
    )

    client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)
    assert [key for key, _ in told(door, 2)] == ["channel.closed", "connection.closed"]


def test_consumer_of_a_stream_is_told_too(door):
    client = door.client()
    client.call(QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk)
    client.call(BasicQos(prefetch_count=1), BasicQosOk)
    told(door, 3)

    client.call(BasicConsume(queue="s", consumer_tag="reader"), BasicConsumeOk)
    client.call(BasicCancel(consumer_tag="reader"), BasicCancelOk)

    assert [(key, headers["consumer_tag"]) for key, headers in told(door, 2)] == [
        ("consumer.created", "reader"), ("consumer.deleted", "reader")
    ]


def test_refused_login_is_told_with_its_reason(door):
    client = door.stranger()
    with pytest.raises(AssertionError):
        client.log_in(password="wrong")

    ((key, headers),) = told(door, 1)
    assert (key, headers["name"], headers["user_who_performed_action"]) == (
        "user.authentication.failure", "guest", "rmq-internal"
    )
    assert headers["error"] == "user 'guest' gave a wrong password or does not exist"


def test_consumer_is_told_however_it_ends(door):
    client = door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    told(door, 3)

    client.call(BasicConsume(queue="q", consumer_tag="a", arguments={"x-priority": 2}), BasicConsumeOk)
    client.call(BasicCancel(consumer_tag="a"), BasicCancelOk)
    client.call(BasicConsume(queue="q", consumer_tag="b", no_ack=True), BasicConsumeOk)
    client.call(ChannelClose(), ChannelCloseOk)
    client.call(ChannelOpen(), ChannelOpenOk)
    client.call(BasicConsume(queue="q", consumer_tag="c"), BasicConsumeOk)
    door.vhost.delete_queue("q")

    found = told(door, 8)
    assert [(key, headers.get("consumer_tag")) for key, headers in found] == [
        ("consumer.created", "a"), ("consumer.deleted", "a"), ("consumer.created", "b"),
        ("consumer.deleted", "b"), ("channel.closed", None),
        ("channel.created", None), ("consumer.created", "c"), ("consumer.deleted", "c")]
    created = found[0][1]
    assert {
        key: created[key]
        for key in ("queue", "vhost", "ack_required", "exclusive", "prefetch_count", "arguments")
    } == {
        "queue": "q", "vhost": "/", "ack_required": True, "exclusive": False, "prefetch_count": 65535,
        "arguments": {"x-priority": 2}}


def test_user_who_declares_is_named_and_an_expiry_is_nobodys(door):
    door.vhost.bindings.unbind_queue("told", events.NAME, "user.#")
    door.vhost.bindings.bind_queue("told", events.NAME, "queue.*")
    client = door.client()
    client.call(QueueDeclare(queue="q", arguments={"x-expires": 1}), QueueDeclareOk)

    found = {key: headers["user_who_performed_action"] for key, headers in told(door, 4)}
    assert (found["queue.created"], found["queue.deleted"]) == ("guest", "rmq-internal")


def test_alarm_is_told(door):
    door.vhost.bindings.bind_queue("told", events.NAME, "alarm.*")
    door.broker.alarms.set("test", "disk")
    door.broker.alarms.clear("test")

    assert [(key, headers["reason"]) for key, headers in told(door, 2)] == [
        ("alarm.set", "low on disk"), ("alarm.cleared", "low on disk")
    ]
