"""Basic: ack, nack, reject and recover."""
import pytest

from tests.support.cases import cases
from tests.support.wire_encoding import method_frame, publish_frames


@pytest.fixture
def filled(channel):
    """A queue with ten messages, named by their numbers."""
    queue = channel.declare()
    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n)) for n in range(10)))
    return queue


def take(channel, queue, count):
    """Get messages without acking them; returns their numbers."""
    return [int(channel.get(queue, no_ack=False).body) for _ in range(count)]


def left(channel, queue):
    """What a queue holds, as (number, redelivered), taken out in order."""
    found = []
    while content := channel.get(queue):
        found.append((int(content.body), content.method.redelivered))
    return found


@cases("settle, again", {
    "ack": ([("basic.ack", {"delivery_tag": 2})], [1, 3]),
    "ack-multiple": ([("basic.ack", {"delivery_tag": 2, "multiple": True})], [3]),
    "ack-all": ([("basic.ack", {"delivery_tag": 0, "multiple": True})], []),
    "ack-backwards": ([("basic.ack", {"delivery_tag": n}) for n in (3, 1, 2)], []),
    "reject-drop": ([("basic.reject", {"delivery_tag": 2})], [1, 3]),
    "nack-drop": ([("basic.nack", {"delivery_tag": 2})], [1, 3]),
    "nack-drop-multiple": ([("basic.nack", {"delivery_tag": 2, "multiple": True})], [3]),
    "nack-drop-all": ([("basic.nack", {"delivery_tag": 0, "multiple": True})], []),
})
def test_settled_messages_do_not_come_back(channel, wire, filled, settle, again):
    """Three messages are held; those not settled come back when the channel is closed."""
    holder = wire.channel(2)
    take(holder, filled, 3)

    for method, values in settle:
        holder.send(method, **values)
    holder.send("channel.close", reply_code=200)
    holder.expect("channel.close-ok")

    channel.expect_count(filled, 7 + len(again))
    assert left(channel, filled) == [(n - 1, True) for n in again] + [(n, False) for n in range(3, 10)]


@cases("settle, redelivered", {
    "reject": ([("basic.reject", {"delivery_tag": 2, "requeue": True})], [1]),
    "nack": ([("basic.nack", {"delivery_tag": 2, "requeue": True})], [1]),
    "nack-multiple": ([("basic.nack", {"delivery_tag": 2, "multiple": True, "requeue": True})], [0, 1]),
    "nack-all": ([("basic.nack", {"delivery_tag": 0, "multiple": True, "requeue": True})], [0, 1, 2]),
    "backwards": ([("basic.reject", {"delivery_tag": n, "requeue": True}) for n in (3, 2, 1)], [0, 1, 2]),
    "forwards": ([("basic.reject", {"delivery_tag": n, "requeue": True}) for n in (1, 2, 3)], [0, 1, 2]),
    "recover": ([("basic.recover-async", {"requeue": True})], [0, 1, 2]),
})
def test_requeued_messages_return_to_their_places(channel, filled, settle, redelivered):
    take(channel, filled, 3)

    for method, values in settle:
        channel.send(method, **values)

    channel.expect_count(filled, 7 + len(redelivered))
    assert left(channel, filled) == [(n, True) for n in redelivered] + [(n, False) for n in range(3, 10)]


@cases("arguments, kept", {
    "drop-head": ({}, [(5, False), (6, False), (7, False)]),
    "dead-letters": ({"x-dead-letter-exchange": "amq.fanout"}, [(5, False), (6, False), (7, False)]),
    "reject-publish": (
        {"x-overflow": "reject-publish"}, [(n, True) for n in (0, 1, 2)] + [(n, False) for n in (5, 6, 7)]
    ),
})
def test_message_that_comes_back_to_a_full_queue_is_the_oldest(channel, arguments, kept):
    """It goes at once where the head is dropped: whoever asks in the same write does not see it (and may be
    answered before it is back).
    """
    queue = channel.declare(arguments={"x-max-length": 3, **arguments})
    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n)) for n in range(3)))
    channel.expect_count(queue, 3)
    take(channel, queue, 3)
    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n)) for n in (5, 6, 7)))
    channel.expect_count(queue, 3)

    channel.wire.send(
        method_frame(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
        + method_frame(1, "queue.declare", queue=queue, passive=True))

    assert channel.expect("queue.declare-ok").message_count <= len(kept)
    assert left(channel, queue) == kept


def test_waiting_consumer_does_not_get_back_what_is_too_much(channel):
    queue = channel.declare(arguments={"x-max-length": 1})
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(queue)
    for n in range(2):
        channel.publish("", queue, str(n))
    channel.expect_content("basic.deliver", b"0")
    channel.expect_count(queue, 1)

    channel.send("basic.reject", delivery_tag=1, requeue=True)

    channel.expect_content("basic.deliver", b"1", redelivered=False)


@cases("method, values", {
    "ack": ("basic.ack", {"delivery_tag": 5}), "ack-0": ("basic.ack", {"delivery_tag": 0}),
    "ack-multiple": ("basic.ack", {"delivery_tag": 5, "multiple": True}),
    "nack": ("basic.nack", {"delivery_tag": 5}), "nack-0": ("basic.nack", {"delivery_tag": 0}),
    "reject": ("basic.reject", {"delivery_tag": 5}),
    "nack-multiple": ("basic.nack", {"delivery_tag": 5, "multiple": True}),
    "reject-0": ("basic.reject", {"delivery_tag": 0}),
    "ack-huge": ("basic.ack", {"delivery_tag": 2 ** 64 - 1}),
    "nack-huge": ("basic.nack", {"delivery_tag": 2 ** 63}),
})
def test_unknown_delivery_tag_is_406(channel, method, values):
    channel.send(method, **values)

    channel.expect_close(406, f"PRECONDITION_FAILED - unknown delivery tag {values['delivery_tag']}", method)


@cases("method, values", {
    "ack": ("basic.ack", {}), "ack-multiple": ("basic.ack", {"multiple": True}), "nack": ("basic.nack", {}),
    "reject": ("basic.reject", {"requeue": True}),
})
def test_delivery_tag_settled_twice_is_406(channel, filled, method, values):
    take(channel, filled, 2)
    channel.send("basic.ack", delivery_tag=1)

    channel.send(method, delivery_tag=1, **values)

    channel.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 1", method)


def test_delivery_tag_above_the_last_is_406_even_with_multiple(channel, filled):
    take(channel, filled, 2)

    channel.send("basic.ack", delivery_tag=3, multiple=True)

    channel.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 3", "basic.ack")


def test_delivery_tag_of_a_no_ack_delivery_is_406(channel, filled):
    channel.get(filled, no_ack=True)

    channel.send("basic.ack", delivery_tag=1)

    channel.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 1", "basic.ack")


def test_delivery_tag_of_another_channel_is_406(channel, wire, filled):
    take(channel, filled, 1)

    other = wire.channel(2)
    other.send("basic.ack", delivery_tag=1)

    other.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 1", "basic.ack")


@pytest.mark.parametrize("method", ["basic.ack", "basic.nack"])
def test_tag_0_with_multiple_and_nothing_held_is_fine(channel, method):
    channel.send(method, delivery_tag=0, multiple=True)

    assert channel.declare()


def test_multiple_ack_steps_over_gaps(channel, wire, filled):
    """Tags settled one by one before, and no_ack tags in between,
    do not matter to a multiple ack of a tag that is held.
    """
    holder = wire.channel(2)
    take(holder, filled, 3)
    holder.get(filled, no_ack=True)
    take(holder, filled, 1)
    holder.send("basic.ack", delivery_tag=2)

    holder.send("basic.ack", delivery_tag=5, multiple=True)
    holder.send("channel.close", reply_code=200)
    holder.expect("channel.close-ok")

    assert left(channel, filled) == [(n, False) for n in range(5, 10)]


def test_requeued_message_goes_to_a_consumer_again_with_a_new_tag(channel, filled):
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(filled)
    channel.expect_content("basic.deliver", b"0", delivery_tag=1, redelivered=False)

    channel.send("basic.nack", delivery_tag=1, requeue=True)

    channel.expect_content("basic.deliver", b"0", delivery_tag=2, redelivered=True)
    channel.send("basic.ack", delivery_tag=2)
    channel.expect_content("basic.deliver", b"1", delivery_tag=3, redelivered=False)


def test_recover_is_answered_and_redelivers_all_unacked(channel, filled):
    take(channel, filled, 2)

    channel.send("basic.recover", requeue=True)

    channel.expect("basic.recover-ok")
    assert left(channel, filled)[:3] == [(0, True), (1, True), (2, False)]


def test_recover_redelivers_to_the_consumer(channel, filled):
    channel.call("basic.qos", prefetch_count=2)
    channel.consume(filled)
    for n in range(2):
        channel.expect_content("basic.deliver", str(n))

    channel.send("basic.recover", requeue=True)

    channel.expect("basic.recover-ok")
    for n in range(2):
        channel.expect_content("basic.deliver", str(n), redelivered=True, delivery_tag=3 + n)


def test_recover_with_nothing_unacked_is_answered(channel):
    channel.send("basic.recover", requeue=True)

    channel.expect("basic.recover-ok")


@pytest.mark.parametrize("method", ["basic.recover", "basic.recover-async"])
def test_recover_without_requeue_closes_the_connection_with_540(channel, wire, method):
    """RabbitMQ never implemented redelivery to the same consumer."""
    channel.send(method, requeue=False)

    wire.expect_connection_close(540, "NOT_IMPLEMENTED - requeue=false", method)


def test_thousand_unacked_messages_are_settled_in_any_order(channel):
    queue = channel.declare()
    channel.wire.send(b"".join(publish_frames(1, "", queue, str(n)) for n in range(1000)))
    channel.consume(queue)
    for n in range(1000):
        channel.expect_content("basic.deliver", str(n))

    for tag in list(range(1000, 500, -1)) + list(range(1, 500, 2)):
        channel.send("basic.ack", delivery_tag=tag)
    channel.send("basic.ack", delivery_tag=500, multiple=True)

    channel.send("basic.ack", delivery_tag=0, multiple=True)
    channel.expect_count(queue, 0)


@pytest.mark.deviates("RabbitMQ 3.10 counts every return", of="3.10")
@cases("settle, headers", {
    "nack": (("basic.nack", {"requeue": True}), {"x-acquired-count": 30}),
    "recover": (("basic.recover-async", {"requeue": True}), {"x-acquired-count": 30}),
    "reject": (("basic.reject", {"requeue": True}), None),
    "close": (None, None),
})
def test_quorum_queue_limits_failed_deliveries_and_no_others(wire, name, settle, headers):
    """A message that 20 failures may not exceed comes 31 times, or 21 times."""
    channel = wire.channel(1)
    channel.declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    channel.publish("", name, b"x")
    channel.expect_count(name, 1)
    for number in range(31 if headers else 21):
        taker = wire.channel(2 + number)
        content = taker.get(name, no_ack=False)
        assert content.body == b"x" and content.method.redelivered == (number > 0)
        if settle is not None:
            method, values = settle
            tag = {} if method == "basic.recover-async" else {"delivery_tag": 1}
            taker.send(method, **tag, **values)
        taker.send("channel.close", reply_code=200)
        taker.expect("channel.close-ok")

    if headers is None:
        channel.expect_count(name, 0)
    else:
        assert content.properties["headers"] == headers
    channel.call("queue.delete", queue=name)
