"""The client's channel against a scripted broker: every call's octets, answers, confirms, deliveries,
returns and closes.
"""
import struct
from contextlib import contextmanager

import pytest

from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.errors import UnexpectedFrame
from gomq_py.amqp.wire.frames import FRAME_METHOD, decode_header, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetEmpty,
    BasicGetOk, BasicNack, BasicPublish, BasicReject, BasicReturn, ChannelClose, ChannelCloseOk, ChannelFlow,
    ChannelFlowOk, ConfirmSelect, ConfirmSelectOk, QueueDeclare, QueueDeclareOk, QueuePurge, QueuePurgeOk,
)
from gomq_py.client.channel import Channel
from gomq_py.client.connection import Connection
from gomq_py.client.delivery import Delivery
from gomq_py.client.errors import ChannelClosed, ConnectionClosed, Timeout
from gomq_py.content.properties import Properties
from tests.support.scripted_broker import scripted_broker
from tests.support.waiting import in_time

TIMEOUT_S = in_time(20)  # less than the scripted broker's, which waits for what its client does next


@contextmanager
def channel_with(script, **options):
    """An open channel 1 whose broker runs ``script(peer)``, then lets the client close."""

    def whole(peer):
        peer.handshake(**options)
        peer.channel()
        script(peer)
        peer.farewell()

    with scripted_broker(whole) as url:
        with Connection(url, timeout_s=TIMEOUT_S) as connection:
            yield connection.channel()


def answering(expected, reply, seen):
    def script(peer):
        seen.append(peer.expect(type(expected))[1])
        peer.send(1, reply)

    return script


# (call, the method it sends, the broker's answer)
CALLS = [
    (lambda c: c.flow(False), ChannelFlow(active=False), ChannelFlowOk(active=False)),
    (
        lambda c: c.exchange_declare("x", "topic", durable=True, internal=True, arguments={"a": 1}),
        methods.ExchangeDeclare(exchange="x", type="topic", durable=True, internal=True, arguments={"a": 1}),
        methods.ExchangeDeclareOk(),
    ),
    (
        lambda c: c.exchange_delete("x", if_unused=True),
        methods.ExchangeDelete(exchange="x", if_unused=True), methods.ExchangeDeleteOk(),
    ),
    (
        lambda c: c.exchange_bind("d", "s", "k"),
        methods.ExchangeBind(destination="d", source="s", routing_key="k"), methods.ExchangeBindOk(),
    ),
    (
        lambda c: c.exchange_unbind("d", "s", "k"),
        methods.ExchangeUnbind(destination="d", source="s", routing_key="k"), methods.ExchangeUnbindOk(),
    ),
    (
        lambda c: c.queue_declare("q", durable=True, exclusive=True, auto_delete=True, arguments={"a": "b"}),
        QueueDeclare(queue="q", durable=True, exclusive=True, auto_delete=True, arguments={"a": "b"}),
        QueueDeclareOk(queue="q"),
    ),
    (
        lambda c: c.queue_declare("q", passive=True), QueueDeclare(queue="q", passive=True),
        QueueDeclareOk(queue="q"),
    ),
    (
        lambda c: c.queue_bind("q", "x", "k", {"h": 1}),
        methods.QueueBind(queue="q", exchange="x", routing_key="k", arguments={"h": 1}),
        methods.QueueBindOk(),
    ),
    (
        lambda c: c.queue_unbind("q", "x", "k"),
        methods.QueueUnbind(queue="q", exchange="x", routing_key="k"), methods.QueueUnbindOk(),
    ),
    (lambda c: c.queue_purge("q"), QueuePurge(queue="q"), QueuePurgeOk(message_count=3)),
    (
        lambda c: c.queue_delete("q", if_unused=True, if_empty=True),
        methods.QueueDelete(queue="q", if_unused=True, if_empty=True), methods.QueueDeleteOk(message_count=3),
    ),
    (
        lambda c: c.qos(10, global_=True), methods.BasicQos(prefetch_count=10, global_=True),
        methods.BasicQosOk(),
    ),
    (
        lambda c: c.consume(
            "q", consumer_tag="t", no_ack=True, exclusive=True, no_local=True, arguments={"x-priority": 1}
        ),
        BasicConsume(
            queue="q", consumer_tag="t", no_ack=True, exclusive=True, no_local=True,
            arguments={"x-priority": 1},
        ),
        BasicConsumeOk(consumer_tag="t"),
    ),
    (lambda c: c.cancel("t"), BasicCancel(consumer_tag="t"), BasicCancelOk(consumer_tag="t")),
    (lambda c: c.recover(False), methods.BasicRecover(requeue=False), methods.BasicRecoverOk()),
    (lambda c: c.tx_select(), methods.TxSelect(), methods.TxSelectOk()),
    (lambda c: c.tx_commit(), methods.TxCommit(), methods.TxCommitOk()),
    (lambda c: c.tx_rollback(), methods.TxRollback(), methods.TxRollbackOk()),
    (lambda c: c.confirm_select(), ConfirmSelect(), ConfirmSelectOk()),
]


@pytest.mark.parametrize(("call", "sent", "answer"), CALLS, ids=[sent.NAME for _, sent, _ in CALLS])
def test_a_call_sends_its_method_and_waits_for_the_answer(call, sent, answer):
    seen = []

    with channel_with(answering(sent, answer, seen)) as channel:
        call(channel)

    assert seen == [sent]


# (call, the method it sends) where no answer comes
SENDS = [
    (lambda c: c.ack(5, multiple=True), BasicAck(delivery_tag=5, multiple=True)),
    (lambda c: c.nack(5, multiple=True, requeue=False), BasicNack(delivery_tag=5, multiple=True)),
    (lambda c: c.reject(5), BasicReject(delivery_tag=5, requeue=True)),
    (lambda c: c.recover_async(), methods.BasicRecoverAsync(requeue=True)),
]


@pytest.mark.parametrize(("call", "sent"), SENDS, ids=[sent.NAME for _, sent in SENDS])
def test_a_settlement_sends_its_method_and_goes_on(call, sent):
    seen = []

    with channel_with(lambda peer: seen.append(peer.expect(type(sent))[1])) as channel:
        call(channel)

    assert seen == [sent]


def test_counts_of_purge_and_delete_are_returned():
    with channel_with(answering(QueuePurge(), QueuePurgeOk(message_count=3), [])) as channel:
        assert channel.queue_purge("q") == 3


def test_a_declared_queue_tells_its_name_and_counts():
    with channel_with(
        answering(QueueDeclare(), QueueDeclareOk(queue="made", message_count=1, consumer_count=2), [])
    ) as channel:
        declared = channel.queue_declare()

    assert (declared.queue, declared.message_count, declared.consumer_count) == ("made", 1, 2)


def content_of(peer):
    """(method, body size, properties, body frames) of one publish."""
    _, method = peer.expect(BasicPublish)
    _, size, properties = decode_header(peer.frame()[2])
    bodies = []
    while sum(map(len, bodies)) < size:
        bodies.append(peer.frame()[2])
    return method, size, properties, bodies


@pytest.mark.parametrize(("body", "properties", "expected"), [
    (b"hello", None, (5, b"\x00\x00", [b"hello"])),
    ("é", Properties(priority=3), (2, b"\x08\x00\x03", [b"\xc3\xa9"])),
    (b"", b"\x10\x00\x02", (0, b"\x10\x00\x02", [])),
    (b"x" * 9000, None, (9000, b"\x00\x00", [b"x" * 4088, b"x" * 4088, b"x" * 824])),
])
def test_a_publish_is_method_header_and_body_frames(body, properties, expected):
    seen = []

    with channel_with(lambda peer: seen.append(content_of(peer)), frame_max=4096) as channel:
        assert channel.publish("x", "k", body, properties, mandatory=True) == 0

    assert seen == [(BasicPublish(exchange="x", routing_key="k", mandatory=True), *expected)]


def test_many_publishes_arrive_in_order():
    seen = []
    count = 3000

    with channel_with(lambda peer: seen.extend(content_of(peer)[3][0] for _ in range(count))) as channel:
        channel.publish_many(("", "q", b"%d" % number, None) for number in range(count))

    assert seen == [b"%d" % number for number in range(count)]


def confirming(*confirms, publishes):
    def script(peer):
        peer.expect(ConfirmSelect)
        peer.send(1, ConfirmSelectOk())
        for _ in range(publishes):
            content_of(peer)
        for method in confirms:
            peer.send(1, method)

    return script


def test_publishes_are_numbered_from_one_in_confirm_mode():
    with channel_with(confirming(publishes=3)) as channel:
        channel.confirm_select()
        numbers = [
            channel.publish("", "q", b"m"), channel.publish("", "q", b"m"),
            channel.publish_many([("", "q", b"m", None)]),
        ]

    assert numbers == [1, 2, 3]


def test_confirm_may_come_while_its_publish_waits_behind_other_output():
    class Connection:
        frame_max = 4096

        def send(self, octets):
            channel.handle_frame(FRAME_METHOD, method_frame(1, BasicAck(delivery_tag=1))[7:-1])

    channel = Channel(Connection(), 1)
    channel.confirming = True

    assert channel.publish("", "q", b"m") == 1
    assert not channel.unconfirmed


@pytest.mark.parametrize("bad", [("", "q", b"m", Properties(priority=256)), None])
def test_messages_before_a_fault_are_published_under_their_numbers(bad):
    """The fault is in a message, or in the iterable."""
    def messages():
        yield from [("", "q", b"m", None)] * 2
        if bad is None:
            raise KeyError
        yield bad

    confirms = [BasicAck(delivery_tag=3, multiple=True)]
    with channel_with(confirming(*confirms, publishes=3)) as channel:
        channel.confirm_select()
        with pytest.raises((KeyError, ValueError, struct.error)):
            channel.publish_many(messages())
        numbers = [channel.published, channel.publish("", "q", b"m")]
        confirmed = channel.wait_for_confirms()

    assert numbers == [2, 3] and confirmed


def test_single_and_multiple_confirms_in_any_order_confirm_all():
    confirms = [
        BasicAck(delivery_tag=3), BasicAck(delivery_tag=2, multiple=True),
        BasicAck(delivery_tag=0, multiple=True),
    ]

    with channel_with(confirming(*confirms, publishes=4)) as channel:
        channel.confirm_select()
        for _ in range(4):
            channel.publish("", "q", b"m")
        assert channel.wait_for_confirms(TIMEOUT_S) is True


def test_refused_publishes_are_reported_once_with_their_numbers():
    with channel_with(
        confirming(BasicAck(delivery_tag=1), BasicNack(delivery_tag=3, multiple=True), publishes=3)
    ) as channel:
        channel.confirm_select()
        for _ in range(3):
            channel.publish("", "q", b"m")
        channel.connection.wait_for(lambda: not channel.unconfirmed, TIMEOUT_S)
        refused = list(channel.nacked)
        outcomes = [channel.wait_for_confirms(TIMEOUT_S), channel.wait_for_confirms(TIMEOUT_S)]

    assert refused == [2, 3]
    assert outcomes == [False, True]


def test_waiting_for_confirms_that_do_not_come_times_out():
    with channel_with(confirming(publishes=1)) as channel:
        channel.confirm_select()
        channel.publish("", "q", b"m")
        with pytest.raises(Timeout):
            channel.wait_for_confirms(0.05)


def test_a_returned_message_tells_why_and_what():
    def script(peer):
        content_of(peer)
        peer.send_content(
            1, BasicReturn(reply_code=312, reply_text="NO_ROUTE", exchange="x", routing_key="k"), b"body",
            b"\x08\x00\x05",
        )

    with channel_with(script) as channel:
        channel.publish("x", "k", b"body", mandatory=True)
        channel.connection.wait_for(lambda: channel.returned, TIMEOUT_S)
        returned = channel.returned.popleft()

    assert (returned.reply_code, returned.reply_text, returned.exchange, returned.routing_key) == (
        312, "NO_ROUTE", "x", "k"
    )
    assert (returned.body, returned.properties.priority) == (b"body", 5)


def delivering(*bodies, tag="t", after=lambda peer: None):
    def script(peer):
        peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag=tag))
        for number, body in enumerate(bodies, 1):
            method = BasicDeliver(
                consumer_tag=tag, delivery_tag=number, redelivered=True, exchange="x", routing_key="k"
            )
            peer.send_content(1, method, body, b"\x10\x00\x02", frame_max=4096)
        after(peer)

    return script


def test_deliveries_wait_for_a_consumer_without_a_callback():
    with channel_with(delivering(b"one", b"", b"x" * 10000)) as channel:
        channel.consume("q")
        deliveries = [channel.next_delivery(TIMEOUT_S) for _ in range(3)]
        nothing = channel.next_delivery(0.01)

    assert [delivery.body for delivery in deliveries] == [b"one", b"", b"x" * 10000]
    assert (
        deliveries[0].exchange, deliveries[0].routing_key, deliveries[0].redelivered,
        deliveries[0].consumer_tag,
    ) == ("x", "k", True, "t")
    assert (deliveries[0].properties.delivery_mode, deliveries[0].raw_properties) == (2, b"\x10\x00\x02")
    assert nothing is None


def test_drain_calls_the_consumers_callback():
    received = []

    with channel_with(delivering(b"one", b"two")) as channel:
        channel.consume("q", received.append)
        while len(received) < 2:
            assert channel.connection.drain(TIMEOUT_S)

    assert [delivery.body for delivery in received] == [b"one", b"two"]


def test_callbacks_are_not_called_from_within_another_call():
    received = []

    def after(peer):
        peer.expect(QueueDeclare)
        peer.send(1, QueueDeclareOk(queue="q"))

    with channel_with(delivering(b"one", after=after)) as channel:
        channel.consume("q", received.append)
        channel.queue_declare("q")
        before = list(received)
        channel.connection.drain(TIMEOUT_S)

    assert (len(before), len(received)) == (0, 1)


def test_what_a_callback_raises_comes_out_of_drain_and_loses_no_other_delivery():
    received = []

    def callback(delivery):
        received.append(delivery.body)
        if delivery.body == b"bad":
            raise KeyError("mine")

    def after(peer):
        peer.expect(QueueDeclare)
        peer.send(1, QueueDeclareOk(queue="q"))

    with channel_with(delivering(b"bad", b"good", after=after)) as channel:
        channel.consume("q", callback)
        channel.queue_declare("q")  # both deliveries are in by now
        with pytest.raises(KeyError):
            channel.connection.drain(TIMEOUT_S)
        channel.connection.drain(TIMEOUT_S)

    assert received == [b"bad", b"good"]


def test_a_delivery_settles_itself():
    seen = []

    def after(peer):
        seen.extend(peer.expect(kind)[1] for kind in (BasicAck, BasicNack, BasicReject))

    with channel_with(delivering(b"1", b"2", b"3", after=after)) as channel:
        channel.consume("q")
        first, second, third = [channel.next_delivery(TIMEOUT_S) for _ in range(3)]
        first.ack()
        second.nack(requeue=False)
        third.reject()

    assert seen == [
        BasicAck(delivery_tag=1), BasicNack(delivery_tag=2), BasicReject(delivery_tag=3, requeue=True)
    ]


@pytest.mark.parametrize("no_wait", [True, False])
def test_a_consumer_cancelled_by_the_broker_is_told_and_answered_where_asked(no_wait):
    def after(peer):
        peer.send(1, BasicCancel(consumer_tag="t", no_wait=no_wait))
        if not no_wait:
            peer.expect(BasicCancelOk)

    with channel_with(delivering(after=after)) as channel:
        channel.consume("q")
        channel.connection.wait_for(lambda: channel.cancelled, TIMEOUT_S)

        assert list(channel.cancelled) == ["t"]
        assert channel.consumers == {}


def test_get_takes_one_message():
    def script(peer):
        peer.expect(BasicGet)
        peer.send_content(
            1, BasicGetOk(delivery_tag=7, exchange="x", routing_key="k", message_count=2), b"body"
        )

    with channel_with(script) as channel:
        delivery = channel.get("q")

    assert isinstance(delivery, Delivery)
    assert (delivery.delivery_tag, delivery.body, delivery.message_count, delivery.consumer_tag) == (
        7, b"body", 2, ""
    )


def test_get_from_an_empty_queue_is_none():
    with channel_with(answering(BasicGet(), BasicGetEmpty(), [])) as channel:
        assert channel.get("q") is None


def test_the_brokers_flow_is_answered():
    def script(peer):
        peer.send(1, ChannelFlow(active=False))
        assert peer.expect(ChannelFlowOk)[1].active is False

    with channel_with(script) as channel:
        channel.connection.wait_for(lambda: channel.active is False, TIMEOUT_S)


def refusing(peer):
    peer.expect(QueueDeclare)
    peer.send(1, ChannelClose(reply_code=404, reply_text="NOT_FOUND - no queue", class_id=50, method_id=10))
    peer.expect(ChannelCloseOk)


def test_a_channel_closed_by_the_broker_raises_the_reason_from_the_call():
    with channel_with(refusing) as channel:
        with pytest.raises(ChannelClosed) as caught:
            channel.queue_declare("q", passive=True)

    assert (
        caught.value.reply_code, caught.value.reply_text, caught.value.class_id, caught.value.method_id
    ) == (404, "NOT_FOUND - no queue", 50, 10)


def test_a_closed_channel_raises_its_reason_from_every_later_call():
    with channel_with(refusing) as channel:
        for _ in range(2):
            with pytest.raises(ChannelClosed, match="404"):
                channel.queue_declare("q", passive=True)


def test_the_number_of_a_closed_channel_is_used_again():
    def script(peer):
        refusing(peer)
        assert peer.channel() == 1

    with channel_with(script) as channel:
        with pytest.raises(ChannelClosed):
            channel.queue_declare("q", passive=True)
        assert channel.connection.channel().id == 1


def test_a_channel_closed_while_nothing_was_asked_is_raised_by_drain_once():
    def script(peer):
        peer.send(1, ChannelClose(reply_code=406, reply_text="PRECONDITION_FAILED - consumer timeout"))
        peer.expect(ChannelCloseOk)

    with channel_with(script) as channel:
        with pytest.raises(ChannelClosed, match="consumer timeout"):
            channel.connection.drain(TIMEOUT_S)

        assert channel.connection.drain(0.01) is False


def test_closing_a_channel_waits_for_the_answer():
    with channel_with(answering(ChannelClose(), ChannelCloseOk(), [])) as channel:
        channel.close()
        channel.close()

        assert channel.closed


def test_an_answer_of_another_kind_is_not_taken_for_the_right_one():
    with channel_with(answering(QueueDeclare(), QueuePurgeOk(), [])) as channel:
        with pytest.raises(UnexpectedFrame):
            channel.queue_declare("q")


@pytest.mark.parametrize("frames", [
    b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + bytes(10) + b"\xce",  # a header without its method
    b"\x03\x00\x01\x00\x00\x00\x01x\xce",  # a body without its header
])
def test_content_out_of_order_ends_the_connection(frames):
    def whole(peer):
        peer.handshake()
        peer.channel()
        peer.socket.sendall(frames)
        assert peer.expect(methods.ConnectionClose)[1].reply_code == 505

    with scripted_broker(whole) as url:
        connection = Connection(url, timeout_s=TIMEOUT_S)
        connection.channel()
        with pytest.raises(ConnectionClosed, match="505"):
            connection.drain(TIMEOUT_S)


class Ended(BaseException):
    """As gevent's GreenletExit: who waits for an answer is ended."""


def test_a_block_that_is_ended_while_it_waits_for_an_answer_ends_with_that():
    """The answer comes when the channel is being closed, and is nobody's."""

    def script(peer):
        peer.expect(QueueDeclare)
        peer.expect(ChannelClose)
        peer.send(1, QueueDeclareOk(queue="q", message_count=0, consumer_count=0))
        peer.send(1, ChannelCloseOk())

    with channel_with(script) as channel:
        with pytest.raises(Ended):
            with channel:
                channel.send(QueueDeclare(queue="q"))
                raise Ended

        assert channel.closed and channel.error.reply_text == "closed by this client"


def test_a_block_that_fails_says_why_although_the_channel_cannot_be_closed_any_more():
    def script(peer):
        peer.handshake()
        peer.channel()  # and the broker is gone

    with scripted_broker(script) as url:
        with Connection(url, timeout_s=TIMEOUT_S) as connection:
            with pytest.raises(Ended):
                with connection.channel():
                    raise Ended
