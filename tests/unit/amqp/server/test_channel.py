"""Channels: the table of handlers, and how a channel ends."""
import gc

import pytest

from gomq_py.amqp.server.channel import HANDLERS, Channel
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    METHODS, AccessRequest, AccessRequestOk, BasicAck, BasicPublish, ChannelClose, ChannelCloseOk,
    ChannelOpen, ChannelOpenOk, ConfirmSelect, ConfirmSelectOk, ConnectionClose, QueueDeclare, QueueDeclareOk,
)
from gomq_py.content.properties import Properties
from tests.support.door import publish_frames

# Of the specification's methods those that only a server sends, or that a client sends only as an answer.
# RabbitMQ's server knows no others.
NOT_FOR_A_SERVER = {"channel.flow-ok", "basic.return", "basic.deliver", "basic.get-ok", "basic.get-empty"}
PERSISTENT = Properties(delivery_mode=2).encode()


def is_a_clients(method):
    """Whether a client may send this method on a channel by its own will."""
    if method.NAME.startswith("connection.") or method.NAME in NOT_FOR_A_SERVER:
        return False
    return not method.NAME.endswith("-ok")


def test_every_method_a_client_may_send_on_a_channel_has_a_handler():
    wanted = {method.NAME for method in METHODS.values() if is_a_clients(method)}

    assert {method.NAME for method in HANDLERS} - {"channel.close-ok"} == wanted


@pytest.mark.parametrize(
    "method", [m for m in METHODS.values() if m not in HANDLERS and m.ID >> 16 != 10],
    ids=lambda method: method.NAME,
)
def test_other_methods_close_the_connection(client, method):
    client.send_method(method())

    client.expect_error(ConnectionClose, 503, "COMMAND_INVALID - unimplemented method", 0, blamed=method)


def test_access_request_of_old_clients_gets_a_ticket(client):
    assert client.call(AccessRequest(realm="/data"), AccessRequestOk).ticket == 1


# opening

def test_opening_an_open_channel_closes_the_connection(client):
    client.send_method(ChannelOpen())

    client.expect_error(
        ConnectionClose, 504, "CHANNEL_ERROR - second 'channel.open' seen", 0, blamed=ChannelOpen
    )


def test_closed_channel_can_be_opened_again(client):
    client.call(ChannelClose(), ChannelCloseOk)

    client.call(ChannelOpen(), ChannelOpenOk)
    client.call(QueueDeclare(), QueueDeclareOk)


def test_memory_of_a_closed_channel_needs_no_garbage_collection(client):
    """65 000 of them that were dropped held everybody up for a quarter of a second,
    when the collector found them.
    """
    def channels():
        return sum(1 for thing in gc.get_objects() if type(thing) is Channel)

    gc.collect()
    gc.disable()
    try:
        before = channels()
        for _ in range(3):
            client.call(ChannelClose(), ChannelCloseOk)
            client.call(ChannelOpen(), ChannelOpenOk)
        after = channels()
    finally:
        gc.enable()

    assert after == before


def test_channel_opened_again_begins_anew(client):
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish("nowhere")
    client.expect(BasicAck)
    client.call(ChannelClose(), ChannelCloseOk)

    client.call(ChannelOpen(), ChannelOpenOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish("nowhere")

    assert client.expect(BasicAck).delivery_tag == 1


# errors

def test_error_closes_only_its_channel(client):
    client.call(ChannelOpen(), ChannelOpenOk, channel=2)
    client.send_method(QueueDeclare(queue="nope", passive=True))
    client.expect(ChannelClose)

    client.call(QueueDeclare(), QueueDeclareOk, channel=2)


def test_frames_behind_an_error_are_dropped_until_the_client_agrees(client, door):
    client.send(
        method_frame(1, QueueDeclare(queue="nope", passive=True)), publish_frames("q"),
        method_frame(1, QueueDeclare(queue="q")), method_frame(1, BasicPublish(routing_key="q")),
    )
    client.expect(ChannelClose)
    client.expect_silence()

    client.send_method(ChannelCloseOk())

    client.call(ChannelOpen(), ChannelOpenOk)
    assert "q" not in door.vhost.queues


def test_both_sides_may_close_at_the_same_time(client):
    client.send(method_frame(1, QueueDeclare(queue="nope", passive=True)), method_frame(1, ChannelClose()))

    client.expect(ChannelClose)
    client.expect(ChannelCloseOk)
    client.send_method(ChannelCloseOk())
    client.call(ChannelOpen(), ChannelOpenOk)


def test_client_that_closed_at_the_same_time_need_not_agree(client):
    client.send(method_frame(1, QueueDeclare(queue="nope", passive=True)), method_frame(1, ChannelClose()))
    client.expect(ChannelClose)
    client.expect(ChannelCloseOk)

    client.call(ChannelOpen(), ChannelOpenOk)


def test_publishes_before_an_error_are_confirmed_before_the_close(client):
    client.call(ConfirmSelect(), ConfirmSelectOk)

    client.send(publish_frames("nowhere") * 3, publish_frames("q", exchange="nope"))

    assert client.expect(BasicAck).delivery_tag == 3
    client.expect(ChannelClose)


def test_close_waits_for_confirms_that_wait_for_the_disk(slow_disk_door):
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="q", durable=True))
    client.expect_silence()
    slow_disk_door.committer.finish()
    client.expect(QueueDeclareOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish("q", properties=PERSISTENT)

    client.send_method(ChannelClose())

    client.expect_silence()
    slow_disk_door.committer.finish()
    assert client.expect(BasicAck).delivery_tag == 1
    client.expect(ChannelCloseOk)


def test_nothing_is_confirmed_behind_a_channel_error(slow_disk_door):
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="q", durable=True))
    client.expect_silence()
    slow_disk_door.committer.finish()
    client.expect(QueueDeclareOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish("q", properties=PERSISTENT)
    client.send_method(QueueDeclare(queue="nope", passive=True))
    client.expect(ChannelClose)

    slow_disk_door.committer.finish()

    client.expect_silence()
