"""Quorum queues: the order of priorities, and limits beside it."""
import pytest

from gomq_py.broker.features.retry import FAILED, RETURNED
from gomq_py.storage.message import Message
from gomq_py.storage.stores.message_store import MessageStore
from gomq_py.storage.stores.priority_store import PriorityStore
from tests.support.queues import KeepingConsumer, quorum_queue
from tests.unit.broker.queues.test_limits import LimitedBench, bodies


PRIORITY_0 = b"\x08\x00\x00"  # properties


@pytest.fixture
def bench(tmp_path):
    return LimitedBench(tmp_path)


def publish(bench, queue, *messages):
    for body, priority in messages:
        assert bench.publish(queue, body, priority=priority) == [1]


def take(bench, queue):
    """(body, location) of the next message, now unacked."""
    message = Message()
    bench.scheduler.begin(bench.now_ms)
    assert queue.get(message, False)
    bench.scheduler.finish()
    return message.get_body(), message.describe()["location"]


def test_messages_come_by_priority_up_to_31_and_then_by_age(bench):
    queue = bench.limited(kind=quorum_queue)

    publish(bench, queue, (b"-", 0), (b"5", 5), (b"4", 4), (b"31", 31), (b"9", 9), (b"255", 255), (b"1", 1))
    assert bench.publish(queue, b"0", priority=0, properties=PRIORITY_0) == [1]

    assert bodies(bench, queue) == [b"31", b"255", b"9", b"5", b"-", b"4", b"1", b"0"]


def test_queue_has_the_store_of_a_plain_one_until_a_message_has_a_priority(bench):
    queue = bench.limited(kind=quorum_queue)
    publish(bench, queue, (b"a", 0), (b"b", 0))
    assert type(queue.store) is MessageStore
    first = take(bench, queue)[1]

    publish(bench, queue, (b"c", 5))

    assert type(queue.store) is PriorityStore
    queue.requeue(first)
    assert (queue.ready_count, queue.unacked_count) == (3, 0)
    assert bodies(bench, queue) == [b"c", b"a", b"b"]


def test_queue_has_the_store_of_a_plain_one_while_all_priorities_are_the_default(bench):
    queue = bench.limited(kind=quorum_queue)
    publish(bench, queue, (b"a", 4), (b"b", 0))
    assert type(queue.store) is MessageStore

    assert bench.publish(queue, b"c", properties=PRIORITY_0) == [1]

    assert type(queue.store) is PriorityStore
    assert bodies(bench, queue) == [b"a", b"b", b"c"]


def test_closed_queue_without_a_store_refuses_messages(bench):
    queue = quorum_queue("q", "/", None, bench.scheduler)
    queue.fail(OSError("cannot be opened"))

    assert bench.publish(queue, b"x", priority=3) == [0]


def test_single_active_consumer_gets_the_highest_first(bench):
    queue = bench.limited({"x-single-active-consumer": True}, kind=quorum_queue)
    publish(bench, queue, (b"low", 1), (b"high", 5), (b"none", 0))
    consumers = [KeepingConsumer(tag) for tag in ("active", "waiting")]

    for consumer in consumers:
        queue.add_consumer(consumer)
    bench.settle()

    assert [consumer.bodies for consumer in consumers] == [[b"high", b"none", b"low"], []]


def test_queue_that_is_too_long_drops_from_its_highest_level(bench):
    queue = bench.limited({"x-max-length": 2, "x-dead-letter-exchange": "x"}, kind=quorum_queue)

    publish(bench, queue, (b"a", 0), (b"b", 7), (b"c", 7), (b"d", 0))

    assert bench.letters.sent == [(b"b", "maxlen"), (b"c", "maxlen")]
    assert bodies(bench, queue) == [b"a", b"d"]


def test_message_expires_when_it_is_the_next(bench):
    queue = bench.limited({"x-message-ttl": 10, "x-dead-letter-exchange": "x"}, kind=quorum_queue)
    publish(bench, queue, (b"low", 0))
    bench.advance(5)
    publish(bench, queue, (b"high", 5))

    bench.advance(8)
    assert bench.letters.sent == []
    bench.advance(8)

    assert bench.letters.sent == [(b"high", "expired"), (b"low", "expired")]


@pytest.mark.parametrize("priority", [1, 0, 9])
def test_failures_count_on_every_level_and_returns_do_not(bench, priority):
    arguments = {"x-delivery-limit": 1, "x-dead-letter-exchange": "x"}
    queue = bench.limited(arguments, kind=quorum_queue)
    publish(bench, queue, (b"a", priority), (b"other", 4))
    if priority == 1:
        queue.ack(take(bench, queue)[1])

    for how in (RETURNED, RETURNED, FAILED, RETURNED, FAILED):
        assert bench.letters.sent == []
        body, location = take(bench, queue)
        assert body == b"a"
        queue.give_back(location, how)

    assert bench.letters.sent == [(b"a", "delivery_limit")]
