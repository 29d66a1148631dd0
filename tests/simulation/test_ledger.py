"""The judges of the simulation: each promise that is broken by hand is found, and what is allowed is not."""
import pytest

from tests.durability.account import body_of
from tests.simulation.ledger import QueueLedger, TopicLedger
from tests.simulation.world import World


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def queue(world):
    """One with ten messages that were confirmed."""
    ledger = QueueLedger(world, "q")
    ledger.publisher_connects()
    for _ in range(10):
        number, _ = ledger.publish()
        ledger.accept(number)
    return ledger


def findings(world):
    return [finding.split(": ", 2)[2] for finding in world.findings]


def take(hand, *numbers, redelivered=False):
    for number in numbers:
        hand.take(number, number + 1, redelivered)


def test_message_that_was_confirmed_and_does_not_come_is_found(world, queue):
    hand = queue.consumer_connects()
    take(hand, *range(9))
    hand.ack(range(9))

    queue.check_complete()

    assert findings(world) == ["accepted and lost, or never delivered: [9] of 1"]


def test_message_that_comes_back_after_its_ack_was_seen_is_found(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0)
    hand.ack([0])()
    queue.process_ended()

    take(queue.consumer_connects(), 0, redelivered=True)

    assert findings(world)[0].startswith("0 came back")


def test_message_whose_ack_was_not_flushed_may_come_back_after_a_power_cut(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0)
    hand.ack([0])()
    queue.process_ended()
    queue.power_was_cut()

    take(queue.consumer_connects(), 0, redelivered=True)

    assert findings(world) == []


def test_second_delivery_that_is_not_marked_is_found(world, queue):
    take(queue.consumer_connects(), 0)
    queue.process_ended()

    take(queue.consumer_connects(), 0)

    assert findings(world) == ["0 came again, and not as redelivered"]


def test_messages_of_one_connection_out_of_order_are_found(world, queue):
    take(queue.consumer_connects(), 1, 0)

    assert findings(world) == ["0 came after 1"]


def test_messages_of_two_connections_have_no_order(world, queue):
    queue.publisher_connects()
    queue.publish()

    take(queue.consumer_connects(), 10, 0)

    assert findings(world) == []


def test_message_that_overtakes_one_that_was_given_back_is_found(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0, 1)
    hand.give_back([0, 1])()

    take(hand, 1, redelivered=True)

    assert findings(world) == [
        "1 came before 0, which was given back with it", "1 came before 0, which was given back"]


def test_message_that_was_on_its_way_when_another_was_given_back_may_come(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0)
    hand.give_back([0])

    take(hand, 1)

    assert findings(world) == []


def test_octets_that_nobody_published_are_found(world, queue):
    queue.number_of(body_of(3)[:-1] + b"?")
    queue.number_of(body_of(10))

    assert [finding.split(":")[0] for finding in findings(world)] == [
        "octets that nobody published", "10 came, and was never published"]


@pytest.fixture
def topic(world):
    """One with a message at QoS 2 that has come."""
    ledger = TopicLedger(world, "t")
    ledger.publish_at(2)
    ledger.accept(0)
    ledger.deliver(0, 2, None)
    return ledger


def test_message_that_comes_twice_at_qos_2_is_found(world, topic):
    topic.process_ended()
    topic.deliver(0, 2, None)

    assert findings(world) == ["0 came twice at QoS 2"]


def test_message_under_way_may_come_twice_over_a_power_cut(world, topic):
    topic.process_ended()
    topic.power_was_cut()
    topic.deliver(0, 2, None)

    assert findings(world) == []


def test_identifier_that_is_used_anew_too_early_is_found(world, topic):
    topic.publish_at(2)
    topic.deliver(1, 2, 0)

    assert findings(world) == ["1 came with the identifier of 0, which had no PUBREL"]
