"""Confirm: publisher confirms and what they promise about order and routing."""
import pytest

from tests.support.wire_encoding import METHOD, decode_method, method_frame, properties, publish_frames

PERSISTENT = properties(delivery_mode=2)


def confirmed(channel, count):
    """Read acks and nacks until tags 1..count are confirmed; returns the nacked ones.

    A tag confirmed twice fails.
    """
    open_tags, nacked = set(range(1, count + 1)), []
    while open_tags:
        method = channel.wire.next_method(channel.number)
        assert method.name in ("basic.ack", "basic.nack"), method
        tags = (
            {tag for tag in open_tags if tag <= method.delivery_tag} if method.multiple
            else {method.delivery_tag}
        )
        assert tags and tags <= open_tags, f"{method} again, or too early"
        open_tags -= tags
        nacked += sorted(tags) if method.name == "basic.nack" else []
    return nacked


def test_select_is_answered_and_may_be_repeated(channel):
    channel.call("confirm.select")
    channel.call("confirm.select")


def test_select_without_waiting_is_not_answered(channel):
    channel.send("confirm.select", no_wait=True)
    channel.publish("", "no.such.queue")

    channel.expect("basic.ack", delivery_tag=1)


@pytest.mark.parametrize("durable", [False, True], ids=["transient-queue", "durable-queue"])
@pytest.mark.parametrize("octets", [b"\x00\x00", PERSISTENT], ids=["transient", "persistent"])
def test_every_publish_is_confirmed_once(channel, name, durable, octets):
    channel.declare(name, durable=durable, exclusive=True)
    channel.call("confirm.select")

    channel.wire.send(b"".join(publish_frames(1, "", name, str(n), octets) for n in range(500)))

    assert confirmed(channel, 500) == []
    channel.expect_count(name, 500)


def test_tags_count_from_select_on(channel):
    queue = channel.declare()
    channel.publish("", queue, b"before")

    channel.call("confirm.select")
    channel.publish("", queue, b"after")

    channel.expect("basic.ack", delivery_tag=1)


def test_tags_count_per_channel(wire):
    channels = [wire.channel(number) for number in (1, 2)]
    for channel in channels:
        channel.call("confirm.select")

    for channel in channels:
        channel.publish("", "no.such.queue")

    for channel in channels:
        channel.expect("basic.ack", delivery_tag=1)


def test_second_select_does_not_start_counting_again(channel):
    channel.call("confirm.select")
    channel.publish("", "no.such.queue")
    channel.expect("basic.ack", delivery_tag=1)

    channel.call("confirm.select")
    channel.publish("", "no.such.queue")

    channel.expect("basic.ack", delivery_tag=2)


@pytest.mark.parametrize("exchange", ["", "amq.fanout", "amq.topic", "amq.headers"])
def test_unroutable_publish_is_confirmed(channel, exchange):
    channel.call("confirm.select")

    channel.publish(exchange, "no.such.key", b"x", PERSISTENT)

    channel.expect("basic.ack", delivery_tag=1)


def test_return_precedes_the_confirm(channel):
    channel.call("confirm.select")

    channel.publish("", "no.such.queue", b"x", mandatory=True)

    channel.expect_content("basic.return", b"x", reply_code=312)
    channel.expect("basic.ack", delivery_tag=1)


def test_returns_and_confirms_of_many_publishes_keep_their_order(channel):
    """Before the confirm that covers an unroutable mandatory publish, its return must have come."""
    queue = channel.declare()
    channel.call("confirm.select")

    channel.wire.send(b"".join(
        publish_frames(1, "", "no.such" if n % 3 else queue, str(n), mandatory=True) for n in range(1, 61)
    ))

    returned, acked = [], set()
    while len(acked) < 60:
        type_, payload = channel.wire.next_of(1)
        if type_ != METHOD:
            if type_ == 3:
                returned.append(int(payload))
            continue
        method = decode_method(payload)
        if method.name == "basic.ack":
            acked |= set(range(1, method.delivery_tag + 1)) if method.multiple else {method.delivery_tag}
            assert {n for n in acked if n % 3} <= set(returned)
    assert returned == [n for n in range(1, 61) if n % 3]


def test_confirm_of_a_publish_comes_before_a_later_reply_may_need_it(channel):
    """Confirms and other replies may overtake each other, but each comes by itself: nothing else has to be
    sent to shake them loose.
    """
    queue = channel.declare()
    channel.call("confirm.select")

    for n in range(1, 21):
        channel.publish("", queue, str(n), PERSISTENT)
        channel.expect("basic.ack", delivery_tag=n)


def test_rejected_by_a_full_queue_is_nacked(channel):
    queue = channel.declare(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    channel.call("confirm.select")

    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n)) for n in range(5)))

    assert confirmed(channel, 5) == [3, 4, 5]
    channel.expect_count(queue, 2)


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
@pytest.mark.parametrize("limit", ["x-max-length", "x-max-length-bytes"])
def test_what_a_consumer_takes_at_once_is_not_refused(channel, wire, limit, overflow):
    """However many messages come in one piece: each is delivered before the next one asks for room."""
    queue = channel.declare(arguments={limit: 2, "x-overflow": overflow})
    consumer = wire.channel(2)
    consumer.consume(queue, no_ack=True)
    channel.call("confirm.select")

    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n % 10)) for n in range(50)))

    assert confirmed(channel, 50) == []
    assert [consumer.expect_content("basic.deliver").body for _ in range(50)] == [
        b"%d" % (n % 10) for n in range(50)
    ]


@pytest.mark.deviates("RabbitMQ delivers the next message before it looks at the publish")
def test_credit_of_an_ack_is_used_when_the_read_is_over(channel, wire):
    """The acks of a read are worked off together; a full queue does not see, within the read,
    that its consumer has room again.
    """
    queue, publisher = (
        channel.declare(arguments={"x-max-length": 1, "x-overflow": "reject-publish"}), wire.channel(2)
    )
    publisher.call("confirm.select")
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(queue)
    publish = [publish_frames(2, "", queue, body) for body in (b"first", b"second", b"third")]
    wire.send(publish[0] + publish[1])
    channel.expect_content("basic.deliver", b"first")
    assert confirmed(publisher, 2) == []

    wire.send(method_frame(1, "basic.ack", delivery_tag=1) + publish[2])

    channel.expect_content("basic.deliver", b"second")
    publisher.expect("basic.nack", delivery_tag=3)


def test_what_the_prefetch_leaves_over_fills_the_queue(channel, wire):
    queue = channel.declare(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    consumer = wire.channel(2)
    consumer.call("basic.qos", prefetch_count=3)
    consumer.consume(queue)
    channel.call("confirm.select")

    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n)) for n in range(10)))

    assert confirmed(channel, 10) == [6, 7, 8, 9, 10]
    assert [consumer.expect_content("basic.deliver").body for _ in range(3)] == [b"0", b"1", b"2"]
    channel.expect_count(queue, 2)


def test_dropped_from_the_head_of_a_full_queue_is_acked(channel):
    queue = channel.declare(arguments={"x-max-length": 2})
    channel.call("confirm.select")

    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n)) for n in range(5)))

    assert confirmed(channel, 5) == []
    assert [channel.get(queue).body for _ in range(2)] == [b"3", b"4"]


def test_failed_publish_is_not_confirmed(channel, wire):
    channel.call("confirm.select")

    wire.send(publish_frames(1, "", "no.such.queue") + publish_frames(1, "no.such.exchange", ""))

    method = wire.next_method(1)
    if method.name == "basic.ack":  # the first publish's; the error may also discard it
        assert (method.delivery_tag, method.multiple) in ((1, False), (1, True))
        method = wire.next_method(1)
    assert (method.name, method.reply_code) == ("channel.close", 404)


def test_select_on_a_transactional_channel_is_406(channel):
    channel.call("tx.select")

    channel.send("confirm.select")

    channel.expect_close(406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode", "confirm.select")


def test_confirmed_and_consumed_at_once(channel):
    """Deliveries and confirms of one channel do not spoil each other's frames."""
    queue = channel.declare()
    channel.consume(queue, no_ack=True)
    channel.call("confirm.select")

    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n) * 50, PERSISTENT) for n in range(300)))

    acked, bodies = set(), []
    while len(acked) < 300 or len(bodies) < 300:
        type_, payload = channel.wire.next_of(1)
        if type_ == 3:
            bodies.append(payload.decode())
        elif type_ == METHOD and (method := decode_method(payload)).name == "basic.ack":
            acked |= set(range(1, method.delivery_tag + 1)) if method.multiple else {method.delivery_tag}
    assert bodies == [str(n) * 50 for n in range(300)]


def test_client_that_never_reads_delays_nobodys_confirm(open_wire, channel):
    """It publishes with confirms and reads nothing: its confirms pile up somewhere bounded,
    others' come at once.
    """
    deaf = open_wire(receive_buffer_bytes=4096)
    deaf.send(method_frame(1, "channel.open") + method_frame(1, "confirm.select"))
    deaf.socket.setblocking(False)
    burst = publish_frames(1, "", "no.such.queue", b"", mandatory=True) * 500
    sent = 0
    try:
        while sent < 200 * len(burst):
            sent += deaf.socket.send(burst)
    except BlockingIOError:
        pass
    queue = channel.declare()
    channel.call("confirm.select")

    for n in range(1, 101):
        channel.publish("", queue, b"x", PERSISTENT)
        channel.expect("basic.ack", delivery_tag=n)

    deaf.abort()
