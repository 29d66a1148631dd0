"""Basic: consume, cancel, deliver, get and qos."""
import re

import pytest

from tests.support.cases import cases
from tests.support.waiting import wait_until
from tests.support.wire_encoding import METHOD, decode_method, method_frame, properties, publish_frames

IN_EXCLUSIVE_USE = "ACCESS_REFUSED - queue '{}' in vhost '/' in exclusive use"


def publish(channel, queue, count, start=0):
    """Publish numbered messages in one write."""
    channel.wire.send(
        b"".join(publish_frames(channel.number, "", queue, str(n)) for n in range(start, start + count))
    )


def deliveries(channel, count):
    """The bodies of the next deliveries, as numbers."""
    return [int(channel.expect_content("basic.deliver").body) for _ in range(count)]


def expect_silence(channel):
    """Nothing may be waiting for a channel: its next frame must be the answer to a question that
    passed through the broker.
    """
    channel.call("queue.declare", queue=channel.declare(), passive=True)
    assert not [frame for frame in channel.wire.waiting if frame[1] == channel.number]


def test_consume_delivers_what_is_there_and_what_comes(channel, name):
    channel.declare(name)
    publish(channel, name, 2)

    tag = channel.consume(name, consumer_tag="mine")
    first = channel.expect_content(
        "basic.deliver", b"0", consumer_tag="mine", delivery_tag=1, redelivered=False, exchange="",
        routing_key=name)
    publish(channel, name, 1, start=2)

    assert (tag, first.properties) == ("mine", {})
    assert deliveries(channel, 2) == [1, 2]


def test_delivery_tags_count_per_channel(wire):
    one, two = wire.channel(1), wire.channel(2)
    queue = one.declare()
    publish(one, queue, 3)

    assert one.get(queue, no_ack=False).method.delivery_tag == 1
    assert one.get(queue, no_ack=True).method.delivery_tag == 2
    assert two.get(queue, no_ack=False).method.delivery_tag == 1


def test_messages_arrive_in_the_order_they_were_published(channel):
    queue = channel.declare()
    channel.consume(queue, no_ack=True)

    publish(channel, queue, 3000)

    assert deliveries(channel, 3000) == list(range(3000))


def test_broker_names_a_consumer_without_a_tag(channel):
    queue = channel.declare()

    tags = {channel.consume(queue) for _ in range(10)}

    assert len(tags) == 10
    assert all(re.fullmatch("amq\\.ctag-[A-Za-z0-9_-]{16,}", tag) for tag in tags)


def test_consume_without_waiting_delivers_at_once(channel):
    queue = channel.declare()
    publish(channel, queue, 1)

    channel.send("basic.consume", queue=queue, consumer_tag="quiet", no_wait=True)

    channel.expect_content("basic.deliver", b"0", consumer_tag="quiet")


def test_consume_without_waiting_and_without_a_tag_gets_one_made_up(channel):
    queue = channel.declare()
    publish(channel, queue, 1)

    channel.send("basic.consume", queue=queue, no_wait=True)

    assert channel.expect_content("basic.deliver", b"0").method.consumer_tag.startswith("amq.ctag-")


def test_consume_of_a_missing_queue_is_404(channel):
    channel.send("basic.consume", queue="no.such.queue")

    channel.expect_close(404, "NOT_FOUND - no queue 'no.such.queue' in vhost '/'", "basic.consume")


def test_consumer_tag_used_twice_closes_the_connection(channel, wire):
    queue = channel.declare()
    channel.consume(queue, consumer_tag="mine")

    channel.send("basic.consume", queue=queue, consumer_tag="mine")

    wire.expect_connection_close(530, "NOT_ALLOWED - attempt to reuse consumer tag 'mine'", "basic.consume")


def test_consumer_tags_are_per_channel_and_free_after_cancel(wire):
    one, two = wire.channel(1), wire.channel(2)
    queue = one.declare()

    for channel in (one, two):
        channel.consume(queue, consumer_tag="mine")
        channel.call("basic.cancel", consumer_tag="mine")
        channel.consume(queue, consumer_tag="mine")


@cases("first, second", {
    "second-exclusive": (False, True), "first-exclusive": (True, False), "both-exclusive": (True, True)
})
def test_exclusive_consumer_tolerates_no_other(channel, name, first, second):
    channel.declare(name)
    channel.consume(name, exclusive=first)

    channel.send("basic.consume", queue=name, exclusive=second)

    channel.expect_close(403, IN_EXCLUSIVE_USE.format(name), "basic.consume")


def test_queue_is_free_again_after_its_exclusive_consumer(channel, name):
    channel.declare(name)
    tag = channel.consume(name, exclusive=True)

    channel.call("basic.cancel", consumer_tag=tag)

    channel.consume(name, exclusive=True)


@cases("value, type_", {"text": ("high", "longstr"), "double": (1.5, "double"), "bool": (True, "bool")})
def test_consumer_priority_that_is_no_integer_is_406(channel, name, value, type_):
    channel.declare(name)

    channel.send("basic.consume", queue=name, arguments={"x-priority": value})

    text = (
        f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{name}' in vhost '/': "
        f"\"expected integer, got {type_}\""
    )
    channel.expect_close(406, text, "basic.consume")


def test_consumers_of_higher_priority_come_first(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=2)
    for priority, tag in ((-5, "low"), (10, "high"), (0, "middle")):
        channel.consume(queue, consumer_tag=tag, arguments={"x-priority": priority})

    publish(channel, queue, 6)

    assert [channel.expect_content("basic.deliver").method.consumer_tag for _ in range(6)] == [
        "high", "high", "middle", "middle", "low", "low"
    ]


def test_unknown_consumer_arguments_are_ignored(channel):
    assert channel.consume(
        channel.declare(), arguments={"x-colour": {"a": [1]}, "x-cancel-on-ha-failover": True}
    )


def test_offset_of_a_stream_means_nothing_to_a_queue(channel, name):
    channel.declare(name)

    channel.send("basic.consume", queue=name, arguments={"x-stream-offset": "first"})

    text = (
        f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue '{name}' in vhost '/' of queue "
        "type rabbit_classic_queue"
    )
    channel.expect_close(406, text, "basic.consume")


def test_no_local_is_ignored_as_rabbitmq_does(channel):
    queue = channel.declare()
    channel.consume(queue, no_local=True, no_ack=True)

    publish(channel, queue, 1)

    assert deliveries(channel, 1) == [0]


def test_no_ack_consumer_leaves_nothing_unacked(channel, wire):
    queue = channel.declare()
    other = wire.channel(2)
    other.consume(queue, no_ack=True)
    publish(channel, queue, 5)
    assert deliveries(other, 5) == list(range(5))

    other.send("channel.close", reply_code=200)
    other.expect("channel.close-ok")

    channel.expect_count(queue, 0)


def test_cancel_stops_deliveries_and_keeps_what_is_unacked(channel):
    queue = channel.declare()
    tag = channel.consume(queue)
    publish(channel, queue, 1)
    delivery = channel.expect_content("basic.deliver", b"0")

    channel.send("basic.cancel", consumer_tag=tag)
    channel.expect("basic.cancel-ok", consumer_tag=tag)
    publish(channel, queue, 1, start=1)

    channel.expect_count(queue, 1)
    channel.send("basic.reject", delivery_tag=delivery.method.delivery_tag, requeue=True)
    channel.expect_count(queue, 2)


def test_cancel_of_an_unknown_tag_is_answered(channel):
    channel.send("basic.cancel", consumer_tag="no.such.tag")

    channel.expect("basic.cancel-ok", consumer_tag="no.such.tag")


def test_cancel_without_waiting_is_not_answered(channel):
    queue = channel.declare()
    tag = channel.consume(queue)

    channel.send("basic.cancel", consumer_tag=tag, no_wait=True)

    channel.send("queue.declare", queue=queue, passive=True)
    channel.expect("queue.declare-ok", consumer_count=0)


def test_consumer_is_told_when_its_queue_is_deleted(channel, open_wire, name):
    channel.declare(name, exclusive=False)
    channel.consume(name, consumer_tag="mine")

    open_wire().channel().call("queue.delete", queue=name)

    channel.expect("basic.cancel", consumer_tag="mine", no_wait=True)
    channel.consume(channel.declare(), consumer_tag="mine")


@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
def test_consumer_that_deletes_its_queue_hears_the_answer_first(channel, name, durable):
    """py-amqp and with it kombu take the notice for an error when it comes while queue_delete waits."""
    channel.declare(name, exclusive=True, durable=durable)
    tag = channel.consume(name)

    channel.send("queue.delete", queue=name)

    channel.expect("queue.delete-ok")
    channel.expect("basic.cancel", consumer_tag=tag)


def test_consumer_that_did_not_ask_is_not_told_when_its_queue_is_deleted(open_wire, channel, name):
    deaf = open_wire(capabilities={}).channel()
    channel.declare(name, exclusive=False)
    deaf.consume(name, consumer_tag="mine")

    channel.call("queue.delete", queue=name)

    expect_silence(deaf)


def test_deleting_a_queue_forgets_its_unacked_messages(channel, name):
    channel.declare(name)
    publish(channel, name, 1)
    delivery = channel.get(name, no_ack=False)

    channel.call("queue.delete", queue=name)
    channel.send("basic.ack", delivery_tag=delivery.method.delivery_tag)

    assert channel.declare()


def test_two_idle_consumers_alternate(wire):
    """A slow publisher and two idle consumers: strictly one after the other."""
    one, two = wire.channel(1), wire.channel(2)
    queue = one.declare()
    tags = [
        one.consume(queue, no_ack=True, consumer_tag="one"),
        two.consume(queue, no_ack=True, consumer_tag="two"),
    ]

    received = []
    for n in range(40):
        publish(one, queue, 1, start=n)
        type_, number, payload = wire.next_frame()
        assert type_ == METHOD
        received.append(decode_method(payload).consumer_tag)
        assert [wire.next_frame()[1] for _ in range(2)] == [number] * 2

    assert received == tags * 20 or received == tags[::-1] * 20


def test_get_counts_what_remains(channel):
    queue = channel.declare()
    publish(channel, queue, 3)

    assert [channel.get(queue).method.message_count for _ in range(3)] == [2, 1, 0]
    assert channel.get(queue) is None


def test_get_does_not_count_what_expired_behind_it(channel):
    queue = channel.declare()
    channel.publish("", queue, b"stays")
    channel.publish("", queue, b"goes", properties(expiration="0"))
    channel.expect_count(queue, 2)

    content = channel.get(queue)

    assert (content.body, content.method.message_count) == (b"stays", 0)
    channel.expect_count(queue, 0)


def test_get_of_a_missing_queue_is_404(channel):
    channel.send("basic.get", queue="no.such.queue")

    channel.expect_close(404, "NOT_FOUND - no queue 'no.such.queue' in vhost '/'", "basic.get")


def test_get_beside_a_consumer_is_allowed(channel, wire):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(queue)
    publish(channel, queue, 2)
    channel.expect_content("basic.deliver", b"0")

    assert wire.channel(2).get(queue).body == b"1"


def test_prefetch_limits_what_a_consumer_holds(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=3)
    publish(channel, queue, 10)
    channel.consume(queue)

    assert deliveries(channel, 3) == [0, 1, 2]
    channel.expect_count(queue, 7)
    channel.send("basic.ack", delivery_tag=2, multiple=True)
    assert deliveries(channel, 2) == [3, 4]
    channel.expect_count(queue, 5)
    expect_silence(channel)


def test_prefetch_is_per_consumer(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=2)
    for tag in ("one", "two"):
        channel.consume(queue, consumer_tag=tag)

    publish(channel, queue, 10)

    tags = sorted(channel.expect_content("basic.deliver").method.consumer_tag for _ in range(4))
    assert tags == ["one", "one", "two", "two"]
    channel.expect_count(queue, 6)


def test_prefetch_is_for_consumers_that_start_later(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(queue, consumer_tag="old")

    channel.call("basic.qos", prefetch_count=5)

    publish(channel, queue, 10)
    assert deliveries(channel, 1) == [0]
    channel.expect_count(queue, 9)
    channel.consume(queue, consumer_tag="new")
    assert sorted(deliveries(channel, 5)) == [1, 2, 3, 4, 5]
    channel.expect_count(queue, 4)


@pytest.mark.deviates("RabbitMQ 4.3 takes a global prefetch for one of each consumer", of="4.3")
def test_global_prefetch_is_shared_by_the_consumers_of_a_channel(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=3, global_=True)
    for tag in ("one", "two"):
        channel.consume(queue, consumer_tag=tag)

    publish(channel, queue, 10)

    assert sorted(deliveries(channel, 3)) == [0, 1, 2]
    channel.expect_count(queue, 7)
    channel.send("basic.ack", delivery_tag=1)
    assert deliveries(channel, 1) == [3]
    channel.expect_count(queue, 6)


@pytest.mark.deviates("RabbitMQ 4.3 takes a global prefetch for one of each consumer", of="4.3")
def test_global_prefetch_changes_take_effect_at_once(channel):
    """What Celery does when it counts tasks with an ETA: it raises the prefetch of the running consumer."""
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1, global_=True)
    channel.consume(queue)
    publish(channel, queue, 10)
    assert deliveries(channel, 1) == [0]

    channel.call("basic.qos", prefetch_count=4, global_=True)

    assert deliveries(channel, 3) == [1, 2, 3]
    channel.expect_count(queue, 6)


@pytest.mark.deviates("RabbitMQ 4.3 takes a global prefetch for one of each consumer", of="4.3")
def test_global_prefetch_of_0_is_no_limit(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1, global_=True)
    channel.consume(queue)
    publish(channel, queue, 10)
    assert deliveries(channel, 1) == [0]

    channel.call("basic.qos", prefetch_count=0, global_=True)

    assert deliveries(channel, 9) == list(range(1, 10))


@pytest.mark.deviates("RabbitMQ 4.3 takes a global prefetch for one of each consumer", of="4.3")
def test_both_prefetch_limits_hold(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=2)
    channel.call("basic.qos", prefetch_count=3, global_=True)
    for tag in ("one", "two"):
        channel.consume(queue, consumer_tag=tag)

    publish(channel, queue, 10)

    assert sorted(deliveries(channel, 3)) == [0, 1, 2]
    channel.expect_count(queue, 7)


@pytest.mark.deviates("RabbitMQ 4.3 takes a global prefetch for one of each consumer", of="4.3")
@pytest.mark.parametrize("prefetch_count", [0, 1, 10])
def test_prefetch_of_consumers_lifts_that_of_the_channel(channel, prefetch_count):
    """Whoever wants both limits sets that of the channel last."""
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1, global_=True)
    channel.consume(queue)
    publish(channel, queue, 4)
    assert deliveries(channel, 1) == [0]

    channel.call("basic.qos", prefetch_count=prefetch_count)

    assert deliveries(channel, 3) == [1, 2, 3]


@pytest.mark.deviates("RabbitMQ 3.10 counts them, and goes on counting them when they are acked", of="3.10")
def test_messages_got_before_a_limit_of_the_channel_do_not_count(channel):
    queue = channel.declare()
    publish(channel, queue, 1)
    channel.get(queue, no_ack=False)

    channel.call("basic.qos", prefetch_count=1, global_=True)
    channel.consume(queue)

    publish(channel, queue, 2, start=1)
    assert deliveries(channel, 1) == [1]
    expect_silence(channel)


@pytest.mark.deviates("RabbitMQ delivers them as they come while a consumer waits")
def test_messages_of_one_read_are_delivered_by_priority(channel, wire):
    queue, consumer = channel.declare(arguments={"x-max-priority": 9}), wire.channel(2)
    consumer.consume(queue, no_ack=True)
    for n in range(5):  # the first of a level waits for files: what comes behind it is not of the same read
        wire.send(publish_frames(1, "", queue, str(n), properties(priority=n)))
        assert deliveries(consumer, 1) == [n]

    wire.send(b"".join(publish_frames(1, "", queue, str(n), properties(priority=n)) for n in range(5)))

    assert deliveries(consumer, 5) == [4, 3, 2, 1, 0]


@pytest.mark.deviates("RabbitMQ 3.10's quorum queues have no priorities", of="3.10")
def test_quorum_queue_delivers_by_priority_without_an_argument(channel, name):
    """A message without a priority has 4."""
    channel.declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    for priority in (0, 5, 4, 31, 9, 255, None):
        has_one = {} if priority is None else {"priority": priority}
        channel.publish("", name, str(priority), properties(delivery_mode=2, **has_one))
    channel.expect_count(name, 7)

    channel.consume(name, no_ack=True)

    assert [channel.expect_content("basic.deliver").body for _ in range(7)] == [
        b"31", b"255", b"9", b"5", b"4", b"None", b"0"]
    channel.call("queue.delete", queue=name)


@pytest.mark.deviates(
    "RabbitMQ 3.10 delivers nothing of them before something else happens to the queue", of="3.10")
def test_next_active_consumer_gets_what_waits(wire):
    channel, other = wire.channel(1), wire.channel(2)
    queue = channel.declare(arguments={"x-single-active-consumer": True})
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(queue, consumer_tag="first")
    publish(channel, queue, 3)
    assert deliveries(channel, 1) == [0]
    other.consume(queue)

    channel.call("basic.cancel", consumer_tag="first")

    assert deliveries(other, 2) == [1, 2]


@pytest.mark.deviates("RabbitMQ looks at a consumer that used up its prefetch at its old place")
def test_requeued_message_goes_to_the_consumer_that_waits(wire):
    channel, other = wire.channel(1), wire.channel(2)
    queue = channel.declare()
    for one in (channel, other):
        one.call("basic.qos", prefetch_count=1)
    channel.consume(queue)
    publish(channel, queue, 1)
    assert deliveries(channel, 1) == [0]
    other.consume(queue)

    channel.send("basic.reject", delivery_tag=1, requeue=True)

    assert deliveries(other, 1) == [0]


@pytest.mark.deviates("RabbitMQ 4.3 takes a global prefetch for one of each consumer", of="4.3")
def test_consumer_without_acks_waits_while_the_channel_has_no_credit(channel):
    acking, other = channel.declare(), channel.declare()
    channel.call("basic.qos", prefetch_count=1, global_=True)
    channel.consume(acking, consumer_tag="acking")
    publish(channel, acking, 1)
    assert deliveries(channel, 1) == [0]

    channel.consume(other, consumer_tag="other", no_ack=True)
    publish(channel, other, 1, start=7)

    expect_silence(channel)
    channel.send("basic.ack", delivery_tag=1)
    channel.expect_content("basic.deliver", b"7", consumer_tag="other")


@cases("queue_count", {"queues": 3, "consumers": 1})
def test_shared_credit_goes_round(channel, queue_count):
    """No consumer of a channel starves because another one always has something to take."""
    queues = [channel.declare() for _ in range(queue_count)]
    channel.call("basic.qos", prefetch_count=1, global_=True)
    for n in range(3):
        channel.consume(queues[n % queue_count], consumer_tag=str(n))
    for queue in queues:
        publish(channel, queue, 60)

    served = set()
    for _ in range(50):
        method = channel.expect_content("basic.deliver").method
        served.add(method.consumer_tag)
        channel.send("basic.ack", delivery_tag=method.delivery_tag)

    assert served == {"0", "1", "2"}


def test_consumer_gets_what_was_published_before_it_was_cancelled(channel):
    """All in one write: the messages and the cancel arrive together."""
    queue = channel.declare()
    channel.consume(queue, consumer_tag="first", no_ack=True, arguments={"x-priority": 1})
    channel.consume(queue, consumer_tag="second", no_ack=True)

    frames = [publish_frames(1, "", queue, str(n)) for n in range(6)]
    frames.insert(3, method_frame(1, "basic.cancel", consumer_tag="first"))
    channel.wire.send(b"".join(frames))

    for n in range(3):
        channel.expect_content("basic.deliver", str(n), consumer_tag="first")
    channel.expect("basic.cancel-ok")
    for n in range(3, 6):
        channel.expect_content("basic.deliver", str(n), consumer_tag="second")


@cases("method, values, answer", {
    "get": ("basic.get", {"no_ack": True}, "basic.get-empty"), "purge": ("queue.purge", {}, "queue.purge-ok"),
    "delete": ("queue.delete", {}, "queue.delete-ok"),
    "delete-if-empty": ("queue.delete", {"if_empty": True}, "queue.delete-ok"),
})
def test_waiting_consumer_comes_before_what_is_asked_behind_a_publish(wire, channel, method, values, answer):
    """The message is the consumer's, although the next method of the same write is about its queue."""
    consuming = wire.channel(2)
    queue = channel.declare()
    consuming.consume(queue, no_ack=True)

    wire.send(publish_frames(1, "", queue, b"mine") + method_frame(1, method, queue=queue, **values))

    consuming.expect_content("basic.deliver", b"mine")
    assert channel.expect(answer).fields.get("message_count", 0) == 0


@cases("arguments, values", {"queue": ({"x-message-ttl": 0}, {}), "message": ({}, {"expiration": "0"})})
def test_message_that_may_not_wait_is_for_waiting_consumers_only(channel, arguments, values):
    queue = channel.declare(arguments=arguments)

    channel.wire.send(
        publish_frames(1, "", queue, b"x", properties(**values)) + method_frame(1, "basic.get", queue=queue)
    )

    channel.expect("basic.get-empty")
    channel.consume(queue)
    for n in range(1, 21):
        channel.publish("", queue, b"y", properties(**values))
        channel.expect_content("basic.deliver", b"y", delivery_tag=n, redelivered=False)
        channel.send("basic.reject", delivery_tag=n, requeue=True)


def test_get_is_not_limited_by_prefetch(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1)
    publish(channel, queue, 3)

    assert [channel.get(queue, no_ack=False).body for _ in range(3)] == [b"0", b"1", b"2"]


def test_no_ack_consumer_is_not_limited_by_prefetch(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(queue, no_ack=True)

    publish(channel, queue, 5)

    assert deliveries(channel, 5) == list(range(5))


def test_prefetch_size_closes_the_connection_with_540(channel, wire):
    channel.send("basic.qos", prefetch_size=10)

    wire.expect_connection_close(540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)", "basic.qos")


def test_single_active_consumer_is_followed_by_the_next(channel):
    queue = channel.declare(arguments={"x-single-active-consumer": True})
    for tag in ("one", "two", "three"):
        channel.consume(queue, consumer_tag=tag, no_ack=True)
    publish(channel, queue, 3)
    assert {channel.expect_content("basic.deliver").method.consumer_tag for _ in range(3)} == {"one"}

    channel.call("basic.cancel", consumer_tag="one")
    publish(channel, queue, 3)

    assert {channel.expect_content("basic.deliver").method.consumer_tag for _ in range(3)} == {"two"}


@pytest.mark.deviates("RabbitMQ answers with 405")
def test_message_is_got_beside_the_single_active_consumer_of_a_quorum_queue(channel, name):
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    channel.declare(name, durable=True, arguments=arguments)
    channel.publish("", name, b"x")

    channel.send("basic.get", queue=name)

    assert channel.expect_content("basic.get-ok").body == b"x"
    channel.call("queue.delete", queue=name)


def test_consumers_of_a_dropped_connection_are_gone(channel, open_wire, name):
    channel.declare(name, exclusive=False, auto_delete=True)
    other = open_wire()
    other.channel().consume(name)

    other.abort()

    wait_until(lambda: not channel.has_queue(name))


def test_client_that_does_not_read_holds_up_nobody(open_wire, channel, name):
    """A consumer that never reads gets what fits into its buffers; the rest stays for others."""
    channel.declare(name, exclusive=False)
    lazy = open_wire(receive_buffer_bytes=4096).channel()
    lazy.send("basic.consume", queue=name, no_ack=True)
    quick = open_wire().channel()
    mine = quick.declare()
    quick.consume(mine, no_ack=True)

    for _ in range(50):
        channel.publish("", name, b"x" * 1000000)
    publish(channel, mine, 100)

    assert deliveries(quick, 100) == list(range(100))
    lazy.wire.abort()
    channel.call("queue.delete", queue=name)
