"""Tx: select, commit and rollback of publishes and acks."""
import pytest

from tests.support.broker_under_test import KIND, RABBITMQ
from tests.support.cases import cases
from tests.support.wire_encoding import method_frame, properties, publish_frames


@pytest.fixture
def tx(wire, channel):
    """Channel 2, in transactional mode; `channel` looks on from outside."""
    transactional = wire.channel(2)
    transactional.call("tx.select")
    return transactional


@pytest.fixture
def held(channel, tx):
    """A queue whose only message the transactional channel holds, as delivery tag 1."""
    queue = channel.declare()
    channel.publish("", queue, b"x")
    channel.expect_count(queue, 1)
    assert tx.get(queue, no_ack=False).method.delivery_tag == 1
    return queue


def test_select_may_be_repeated(tx):
    tx.call("tx.select")


def test_published_messages_appear_with_commit(channel, tx):
    queue = channel.declare()
    for n in range(3):
        tx.publish("", queue, str(n), properties(delivery_mode=2, message_id=str(n)))
    tx.call("queue.declare", queue=queue, passive=True)
    channel.expect_count(queue, 0)

    tx.call("tx.commit")

    channel.expect_count(queue, 3)
    contents = [channel.get(queue) for _ in range(3)]
    assert [(content.body, content.properties["message_id"]) for content in contents] == [
        (b"0", "0"), (b"1", "1"), (b"2", "2")
    ]


def test_published_messages_vanish_with_rollback(channel, tx):
    queue = channel.declare()
    tx.publish("", queue, b"x")

    tx.call("tx.rollback")
    tx.call("tx.commit")

    channel.expect_count(queue, 0)


def test_time_of_a_message_begins_with_commit(channel, tx):
    """Two messages that live 400 ms are committed when another one,
    published after them and as short-lived, has died.
    """
    by_queue, by_itself = tx.declare(arguments={"x-message-ttl": 400}), tx.declare()
    tx.publish("", by_queue, b"x")
    tx.publish("", by_itself, b"x", properties(expiration="400"))
    tx.call("queue.declare", queue=by_queue, passive=True)
    graveyard = channel.declare()
    witness = channel.declare(
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": graveyard})
    channel.publish("", witness, b"x", properties(expiration="400"))
    channel.expect_count(graveyard, 1)

    gets = b"".join(method_frame(2, "basic.get", queue=queue, no_ack=True) for queue in (by_queue, by_itself))
    # In one go, or they might be gone again before we ask;
    # RabbitMQ answers 504 to whatever comes before commit-ok.
    in_one_go = KIND not in RABBITMQ
    tx.wire.send(method_frame(2, "tx.commit") + (gets if in_one_go else b""))
    tx.expect("tx.commit-ok")
    if not in_one_go:
        tx.wire.send(gets)

    for _ in range(2):
        tx.expect_content("basic.get-ok", b"x")


@pytest.mark.deviates("RabbitMQ 4.3 closes the connection with 506", of="4.3")
def test_queue_deleted_before_the_commit_is_no_obstacle(channel, tx):
    """The others get the message, and a mandatory one that nobody gets is returned."""
    gone, there = channel.declare(), channel.declare()
    for queue in (gone, there):
        channel.call("queue.bind", queue=queue, exchange="amq.direct", routing_key=gone)
    tx.publish("amq.direct", gone, b"to both")
    tx.publish("", gone, b"to one", mandatory=True)
    tx.call("queue.declare", queue=gone, passive=True)
    channel.call("queue.delete", queue=gone)

    tx.send("tx.commit")

    tx.expect_content("basic.return", b"to one", reply_code=312)
    tx.expect("tx.commit-ok")
    assert channel.get(there).body == b"to both"


@pytest.mark.parametrize("how", ["close", "error"])
def test_published_messages_vanish_with_the_channel(channel, tx, how):
    queue = channel.declare()
    tx.publish("", queue, b"x")

    if how == "close":
        tx.send("channel.close", reply_code=200)
        tx.expect("channel.close-ok")
    else:
        tx.send("queue.declare", queue="no.such.queue", passive=True)
        tx.expect_close(404, "NOT_FOUND - no queue 'no.such.queue' in vhost '/'", "queue.declare")

    channel.expect_count(queue, 0)


def test_commits_follow_each_other(channel, tx):
    queue = channel.declare()

    for n in range(1, 6):
        tx.publish("", queue, b"x" * 100000)
        tx.call("tx.commit")
        channel.expect_count(queue, n)


def test_empty_commit_and_rollback_are_answered(tx):
    tx.call("tx.commit")
    tx.call("tx.rollback")


def test_acks_take_effect_with_commit(channel, tx, held):
    tx.send("basic.ack", delivery_tag=1)

    tx.call("tx.commit")
    tx.send("channel.close", reply_code=200)
    tx.expect("channel.close-ok")

    channel.expect_count(held, 0)


def test_acks_without_commit_have_no_effect(channel, tx, held):
    tx.send("basic.ack", delivery_tag=1)

    tx.send("channel.close", reply_code=200)
    tx.expect("channel.close-ok")

    channel.expect_count(held, 1)
    assert channel.get(held).method.redelivered is True


def test_rolled_back_acks_may_be_given_again(tx, held):
    tx.send("basic.ack", delivery_tag=1)
    tx.call("tx.rollback")

    tx.send("basic.ack", delivery_tag=1)
    tx.call("tx.commit")

    tx.send("basic.ack", delivery_tag=1)
    tx.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 1", "basic.ack")


@cases("method", {"ack": "basic.ack", "nack": "basic.nack", "reject": "basic.reject"})
def test_delivery_tag_settled_twice_in_a_transaction_is_406(tx, held, method):
    tx.send("basic.ack", delivery_tag=1)

    tx.send(method, delivery_tag=1)

    tx.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 1", method)


def test_unknown_delivery_tag_is_406_before_commit(tx):
    tx.send("basic.ack", delivery_tag=1)

    tx.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 1", "basic.ack")


@cases("method, values", {
    "reject": ("basic.reject", {"requeue": True}), "nack": ("basic.nack", {"requeue": True, "multiple": True})
})
def test_requeues_take_effect_with_commit(channel, tx, held, method, values):
    tx.send(method, delivery_tag=1, **values)
    assert tx.get(held) is None

    tx.call("tx.commit")

    content = channel.get(held)
    assert (content.body, content.method.redelivered) == (b"x", True)


def test_unroutable_mandatory_message_is_returned_at_commit(tx):
    tx.publish("", "no.such.queue", b"x", mandatory=True)
    tx.send("channel.flow", active=True)
    tx.expect("channel.flow-ok")

    tx.send("tx.commit")

    tx.expect_content("basic.return", b"x", reply_code=312)
    tx.expect("tx.commit-ok")


def test_publish_to_a_missing_exchange_fails_before_commit(tx):
    tx.publish("no.such.exchange", "", b"x")

    tx.expect_close(404, "NOT_FOUND - no exchange 'no.such.exchange' in vhost '/'", "basic.publish")


@pytest.mark.parametrize("method", ["tx.commit", "tx.rollback"])
def test_commit_and_rollback_need_a_transactional_channel(channel, method):
    channel.send(method)

    channel.expect_close(406, "PRECONDITION_FAILED - channel is not transactional", method)


def test_select_on_a_confirming_channel_is_406(channel):
    channel.call("confirm.select")

    channel.send("tx.select")

    channel.expect_close(406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode", "tx.select")


def test_publishes_and_acks_are_committed_together(channel, tx):
    """Take from one queue, pass on to another: the classic use."""
    source, target = channel.declare(), channel.declare()
    channel.wire.send(b"".join(publish_frames(1, "", source, str(n)) for n in range(10)))
    tx.consume(source)

    contents = [tx.expect_content("basic.deliver", str(n)) for n in range(10)]
    for n, content in enumerate(contents):
        tx.publish("", target, content.body)
        tx.send("basic.ack", delivery_tag=content.method.delivery_tag)
        tx.call("tx.commit" if n % 2 else "tx.rollback")

    channel.expect_count(target, 5)
    assert [int(channel.get(target).body) for _ in range(5)] == [1, 3, 5, 7, 9]
    tx.send("channel.close", reply_code=200)
    tx.expect("channel.close-ok")
    channel.expect_count(source, 5)


def test_recover_leaves_uncommitted_acks_alone(channel, tx, held):
    tx.send("basic.ack", delivery_tag=1)

    tx.call("basic.recover", requeue=True)
    tx.call("tx.commit")

    channel.expect_count(held, 0)


def test_large_transaction_is_committed_whole(channel, tx):
    queue = channel.declare()
    tx.wire.send(b"".join(publish_frames(2, "", queue, str(n) * 100) for n in range(2000)))

    tx.call("tx.commit")

    channel.expect_count(queue, 2000)
