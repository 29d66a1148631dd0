"""Memory: what a channel and a connection held goes when they do, without the collector of garbage."""
import gc
import logging
import weakref

import gevent
import pytest

from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet,
    BasicGetOk, BasicQos, BasicQosOk, BasicRecover, BasicRecoverOk, ChannelClose, ChannelCloseOk,
    ConfirmSelect, ConfirmSelectOk, ConnectionClose, ConnectionCloseOk, QueueDeclare, QueueDeclareOk,
    TxCommit, TxCommitOk, TxSelect, TxSelectOk,
)
from gomq_py.content.properties import Properties
from tests.support.waiting import wait_until


@pytest.fixture
def no_collector():
    """Nor a log that pytest keeps, with the errors in it and all that they passed."""
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


def nothing(client):
    """The channel does nothing."""


def consume(client):
    client.call(BasicConsume(queue="q"), BasicConsumeOk)
    client.publish("q", b"1")
    client.expect_message(BasicDeliver)
    client.publish("q", b"2")
    client.expect_message(BasicDeliver)
    client.send_method(BasicAck(delivery_tag=1))


def consume_a_stream(client):
    client.call(QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk)
    client.call(BasicQos(prefetch_count=10), BasicQosOk)
    client.call(BasicConsume(queue="s", arguments={"x-stream-offset": "first"}), BasicConsumeOk)
    client.publish("s", b"1")
    client.expect_message(BasicDeliver)


def reply(client):
    client.call(BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True), BasicConsumeOk)
    client.publish("q", properties=Properties(reply_to="amq.rabbitmq.reply-to").encode())


def recover(client):
    get(client)
    client.call(BasicRecover(requeue=True), BasicRecoverOk)


def cancel(client):
    client.call(BasicConsume(queue="q", consumer_tag="c"), BasicConsumeOk)
    client.call(BasicCancel(consumer_tag="c"), BasicCancelOk)


def get(client):
    client.publish("q")
    client.send_method(BasicGet(queue="q"))
    client.expect_message(BasicGetOk)


def confirm(client):
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.publish("q")
    client.expect(BasicAck)


def transact(client):
    client.call(TxSelect(), TxSelectOk)
    client.publish("q")
    client.call(TxCommit(), TxCommitOk)
    client.publish("q")


def fail(client):
    client.send_method(QueueDeclare(queue="nowhere", passive=True))
    client.expect(ChannelClose)
    client.send_method(ChannelCloseOk())


@pytest.mark.parametrize("end", ["channel", "connection", "socket"])
@pytest.mark.parametrize("use", [
    nothing, consume, consume_a_stream, cancel, get, recover, reply, confirm, transact, fail
])
def test_a_channel_that_has_ended_is_free_at_once(door, no_collector, use, end):
    client = door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    channel = weakref.ref(door.connection().channels[1])
    connection = weakref.ref(door.connection())

    use(client)
    if end == "channel":
        if use is not fail:
            client.call(ChannelClose(reply_code=200), ChannelCloseOk)
    elif end == "connection":
        client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)
        client.expect_end()
        client.close()
    else:
        client.close()

    wait_until(lambda: channel() is None, sleep=gevent.sleep, what="the channel to be free")
    if end != "channel":
        wait_until(lambda: connection() is None, sleep=gevent.sleep, what="the connection to be free")
