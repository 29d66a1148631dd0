"""The judges of consumers with manners: each promise that is broken by hand is found."""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.wire import methods
from tests.simulation.amqp_consumers import ConsumedLedger, MannerlyChannel
from tests.simulation.book import Book, Held
from tests.simulation.world import World


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def ledger(world):
    """Of a queue with ten messages that were confirmed."""
    ledger = ConsumedLedger(world, "m", Book(world), ["single"])
    for _ in range(10):
        ledger.book.accept(ledger.book.publish(None, [ledger]))
    return ledger


@pytest.fixture
def channel(world, ledger):
    """One that has two consumers of different priority, and everything answered."""
    def channel(*manners):
        client = SimpleNamespace(
            world=world, name="client", book=ledger.book, random=world.random("client"), is_calm=False,
            is_closing=False, tell=lambda number, method: None, say=lambda what: None, waits=lambda: None,
            heard=lambda: None, expects=set())
        channel = MannerlyChannel(client, 1, ledger, False, [], manners)
        channel._hand = ledger.consumer_connects()
        channel._is_open = True
        channel._consuming = {"low": 3, "high": 3}
        channel._ranks = {"low": 0, "high": 1}
        return channel

    return channel


def deliver(channel, tag, *numbers):
    for number in numbers:
        method = methods.BasicDeliver(consumer_tag=tag, delivery_tag=number + 1, redelivered=False)
        channel.take(method, b"\0\0", channel._book.messages[number].body)


def findings(world):
    return [finding.split(": ", 2)[2] for finding in world.findings]


def connected(ledger):
    """A hand whose connection is sound."""
    end = SimpleNamespace(
        is_sound=lambda: True, is_closed=False, window=0, peer=SimpleNamespace(is_closed=False))
    return ledger.consumer_connects(end)


def test_message_that_comes_back_though_it_needed_no_ack_is_found(world, ledger, channel):
    deliver(channel("no ack"), "low", 0)

    ledger.consumer_connects().take(ledger.book.messages[0], Held(1, "tag", None), True)

    assert findings(world)[0].startswith("0 came back")


def test_message_that_was_not_sent_and_is_gone_is_found(world, ledger):
    """Beyond what the broker may have had on its way to a connection that was lost."""
    hand = connected(ledger)
    ledger.may_have_sent(hand, sum(len(message.body) for message in ledger.book.messages[:9]))
    assert len(ledger.missing()) == 10
    hand.end.peer.is_closed = True
    world.run(world.now_s + 1.0)
    assert len(ledger.missing()) == 10

    for number in range(5):
        ledger.finish(number)

    assert not ledger.missing()


def test_message_that_comes_after_that_loss_has_to_be_there(world, ledger):
    hand = connected(ledger)
    hand.end.peer.is_closed = True
    ledger.may_have_sent(hand, 1 << 20)

    ledger.book.accept(ledger.book.publish(None, [ledger]))

    assert ledger.missing() == {10}


def test_more_messages_than_all_consumers_may_have_are_found(world, channel):
    shared = channel("shared")
    shared._limits = [2]

    deliver(shared, "high", 0, 1, 2)

    assert findings(world) == ["client has 3 messages in hand, of [2]"]


def test_limit_that_was_asked_for_and_not_answered_may_hold_or_not(world, channel):
    shared = channel("shared")
    shared._limits = [2]
    shared._qos()

    deliver(shared, "high", 0, 1, 2)

    assert findings(world) == []


def test_message_that_comes_to_a_consumer_of_lower_priority_is_found(world, channel):
    ranked = channel("ranked")

    deliver(ranked, "high", 0, 1)
    deliver(ranked, "low", 2)

    assert findings(world) == ["low has a message, and high of higher priority has room"]


def test_message_for_lower_priority_is_right_where_the_higher_one_is_full(world, channel):
    ranked = channel("ranked")

    deliver(ranked, "high", 0, 1, 2)
    deliver(ranked, "low", 3)

    assert findings(world) == []


def test_second_exclusive_consumer_is_found(world, ledger):
    first, second = connected(ledger), connected(ledger)
    ledger.begins_to_consume(first, "a", True)
    ledger.begins_to_consume(second, "b", True)
    world.run(world.now_s + 1.0)

    assert findings(world) == ["b is an exclusive consumer, and a was one"]


def test_exclusive_consumer_may_follow_one_that_was_cancelled(world, ledger):
    first, second = connected(ledger), connected(ledger)
    ledger.begins_to_consume(first, "a", True)
    ledger.ends_to_consume(first, "a")
    ledger.begins_to_consume(second, "b", True)
    world.run(world.now_s + 1.0)

    assert findings(world) == []


def test_message_for_another_than_the_active_consumer_is_found(world, ledger):
    first, second = connected(ledger), connected(ledger)
    ledger.begins_to_consume(first, "a", False)
    ledger.begins_to_consume(second, "b", False)

    ledger.check_active(first, "a")
    ledger.check_active(second, "b")
    world.run(world.now_s + 1.0)

    assert findings(world) == ["b has a message, and a is the active consumer"]


@pytest.mark.parametrize("manner", ["single", "ranked"])
def test_consumer_that_was_cancelled_before_it_was_answered_does_not_count(world, ledger, channel, manner):
    """Seed 222, on 3a1b338e: the next one has the messages, and may have fewer at a time."""
    cancelled = channel(manner)
    cancelled._consuming.clear()
    cancelled._ranks.clear()
    cancelled._consume()
    tag, = cancelled._consuming
    cancelled._cancel()

    cancelled.take(methods.BasicQosOk())
    cancelled.take(methods.BasicConsumeOk(consumer_tag=tag))

    assert tag not in cancelled._hand.consuming and not cancelled._ranks


def test_consumer_whose_channel_was_closed_before_it_was_answered_does_not_count(channel):
    """Seed 1107, on 023f260a: the next channel had its rank, and looked for its limit."""
    closed = channel("ranked")
    closed._consume()
    closed._close()

    closed.take(methods.BasicQosOk())
    closed.take(methods.BasicConsumeOk(consumer_tag="tag"))

    assert not closed._ranks


def test_delivery_that_overtakes_get_ok_is_found(world, channel):
    channel = channel()
    channel._get()
    deliver(channel, "low", 5)

    answer = methods.BasicGetOk(
        delivery_tag=5, redelivered=False, exchange="", routing_key="m", message_count=0)
    channel.take(answer, b"\0\0", channel._book.messages[4].body)

    assert "5 came behind 6, which is a later tag" in findings(world)
