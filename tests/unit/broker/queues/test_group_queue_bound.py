"""A group is bound to the consumer that has messages of it, which gets further ones in order up to its
prefetch, and nobody else gets any.
"""
import pytest

from gomq_py.storage.message import Message
from tests.support.queues import Bench
from tests.unit.broker.queues.test_group_queue import ack, consume, get, limited, publish, settle


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def queue(bench):
    return bench.group_queue(by=b"")


def numbered(group, first, last):
    return [b"%s%d" % (group, number) for number in range(first, last + 1)]


def give_back(bench, queue, consumer, count=None):
    """Requeue the messages of a consumer, all or the first ``count``, as the end of its channel does."""
    queue.hold_deliveries()
    for location in consumer.unacked[:count]:
        queue.requeue(location)
    for kept in (consumer.unacked, consumer.bodies, consumer.redelivered):
        del kept[:count]
    queue.resume_deliveries()
    if consumer.queue is not None:
        queue.offer(consumer)
    bench.settle()


def test_a_consumer_collects_many_messages_of_a_group_before_it_acks(bench, queue):
    consumer = consume(bench, queue, credit=10)

    publish(bench, queue, *numbered(b"a", 1, 12))

    assert consumer.bodies == numbered(b"a", 1, 10)
    ack(bench, consumer, b"a1")
    assert consumer.bodies == numbered(b"a", 2, 11)


def test_nobody_else_gets_a_message_of_a_bound_group(bench, queue):
    first, second = consume(bench, queue, credit=2), consume(bench, queue, credit=9)
    publish(bench, queue, b"a1")
    publish(bench, queue, *numbered(b"a", 2, 5), b"b1")
    assert (first.bodies, second.bodies) == ([b"a1", b"a2"], [b"b1"])

    ack(bench, first, b"a2")
    assert (first.bodies, second.bodies) == ([b"a1", b"a3"], [b"b1"])


def test_a_group_is_free_when_none_of_it_is_out(bench, queue):
    first = consume(bench, queue, credit=2)
    publish(bench, queue, *numbered(b"a", 1, 4))
    second = consume(bench, queue, credit=9)
    assert second.bodies == []
    queue.remove_consumer(first)

    for location in first.unacked:
        queue.ack(location)
    bench.settle()

    assert second.bodies == [b"a3", b"a4"]


def test_a_cancelled_consumer_keeps_its_groups_until_it_has_settled_them(bench, queue):
    first, second = consume(bench, queue, credit=2), consume(bench, queue, credit=9)
    publish(bench, queue, b"a1")
    publish(bench, queue, b"a2", b"a3")
    queue.remove_consumer(first)

    queue.requeue(first.unacked[0])
    bench.settle()
    assert second.bodies == []
    queue.ack(first.unacked[1])
    bench.settle()

    assert (second.bodies, second.redelivered) == ([b"a1", b"a3"], [True, False])


def test_what_a_consumer_held_goes_to_another_in_order(bench, queue):
    first, second = consume(bench, queue, credit=3), consume(bench, queue, credit=9)
    publish(bench, queue, b"a1")
    publish(bench, queue, *numbered(b"a", 2, 4))
    queue.remove_consumer(first)

    give_back(bench, queue, first)

    assert second.bodies == numbered(b"a", 1, 4)
    assert second.redelivered == [True, True, True, False]


def test_many_returned_messages_come_again_in_order(bench, queue):
    bodies = numbered(b"a", 1, 5000)
    bench.publish(queue, *bodies, routing_key=b"a")
    consumer = consume(bench, queue)
    assert consumer.bodies == bodies

    give_back(bench, queue, consumer)

    assert consumer.bodies == bodies


def test_a_returned_message_comes_again_to_its_consumer_before_the_rest(bench, queue):
    first, second = consume(bench, queue, credit=3), consume(bench, queue, credit=9)
    publish(bench, queue, b"a1")
    publish(bench, queue, *numbered(b"a", 2, 5))
    assert first.bodies == [b"a1", b"a2", b"a3"]

    give_back(bench, queue, first, 1)

    assert (first.bodies, first.redelivered) == ([b"a2", b"a3", b"a1"], [False, False, True])
    ack(bench, first, b"a2")
    assert first.bodies == [b"a3", b"a1", b"a4"]
    assert second.bodies == []


def test_a_consumer_that_never_frees_its_group_does_not_starve_others(bench, queue):
    publish(bench, queue, *numbered(b"a", 1, 9), b"b1", b"c1")
    consumer = consume(bench, queue, credit=2)
    taken = []
    while consumer.bodies:
        taken.append(consumer.bodies[0])
        ack(bench, consumer, consumer.bodies[0])

    assert taken[:5] == [b"a1", b"a2", b"b1", b"c1", b"a3"]
    assert taken[5:] == numbered(b"a", 4, 9)


def test_a_consumer_that_always_returns_its_message_does_not_starve_others(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1", b"b2")
    first = consume(bench, queue, credit=1)

    give_back(bench, queue, first)
    second = consume(bench, queue, credit=1)

    assert (first.bodies, second.bodies) == ([b"a1"], [b"b1"])


def test_a_free_group_goes_to_the_next_consumer_behind_what_waits_longer(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"a3", b"b1", b"b2")
    first = consume(bench, queue, credit=2)
    publish(bench, queue, b"c1")
    assert first.bodies == [b"a1", b"a2"]
    queue.remove_consumer(first)
    for location in first.unacked:
        queue.ack(location)
    bench.settle()

    second = consume(bench, queue, credit=4)

    assert second.bodies == [b"b1", b"b2", b"c1", b"a3"]


def test_a_limit_is_the_most_of_a_group_that_is_out(bench):
    queue = bench.group_queue(by=b"", limit=2)
    publish(bench, queue, *numbered(b"a", 1, 5), b"b1")
    first, second = consume(bench, queue), consume(bench, queue)
    assert first.bodies + second.bodies == [b"a1", b"a2", b"b1"]

    ack(bench, first, b"a1")
    assert first.bodies + second.bodies == [b"a2", b"b1", b"a3"]
    give_back(bench, queue, first, 1)

    assert first.bodies == [b"b1", b"a3", b"a2"]


def test_a_channel_that_gets_goes_on_in_its_groups_and_no_other_does(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1", b"a3")
    first, second = object(), object()

    def get_for(taker):
        queue.turn_to(taker)
        return get(queue)

    assert [get_for(first), get_for(second), get_for(first), get_for(second), get_for(first)] == [
        b"a1", b"b1", b"a2", None, b"a3"]


def test_only_the_active_consumer_gets_messages_of_all_groups(bench):
    queue = bench.group_queue(by=b"", arguments={"x-single-active-consumer": True})
    first, second = (consume(bench, queue) for _ in range(2))
    publish(bench, queue, b"a1", b"a2", b"b1")
    assert (first.bodies, second.bodies) == ([b"a1", b"a2", b"b1"], [])

    queue.remove_consumer(first)
    publish(bench, queue, b"a3", b"c1")
    assert second.bodies == [b"c1"]
    give_back(bench, queue, first)

    assert second.bodies == [b"c1", b"a1", b"a2", b"b1", b"a3"]


def test_a_purge_leaves_groups_bound(bench, queue):
    first = consume(bench, queue, credit=1)
    publish(bench, queue, b"a1", b"a2", b"a3")
    second = consume(bench, queue)

    assert queue.purge() == 2
    publish(bench, queue, b"a4")
    assert second.bodies == []
    ack(bench, first, b"a1")

    assert first.bodies + second.bodies == [b"a4"]


def test_what_comes_while_its_consumer_is_full_waits_for_it_without_turns(bench, queue):
    consume(bench, queue, credit=1)
    free = consume(bench, queue)
    publish(bench, queue, b"a1", b"a2", b"a3")
    turns = len(free.turns)

    publish(bench, queue, b"a4")
    bench.scheduler.touch(queue)
    bench.settle()
    assert len(free.turns) <= turns + 2 and free.bodies == []


# limits

def test_a_group_waits_with_its_message_that_waits_for_a_retry(bench, queue):
    limited(bench, queue, **{
        "x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": 20})
    consumer = consume(bench, queue, credit=3)
    publish(bench, queue, *numbered(b"a", 1, 5), b"b1")
    assert consumer.bodies == [b"a1", b"a2", b"a3"]

    settle(bench, consumer, b"a1", queue.requeue)
    assert consumer.bodies == [b"a2", b"a3", b"b1"]
    settle(bench, consumer, b"b1", queue.ack)
    assert consumer.bodies == [b"a2", b"a3"]
    bench.advance(25)

    assert consumer.bodies == [b"a2", b"a3", b"a1"]


def test_a_dead_letter_keeps_its_group_from_others_until_its_copy_is_safe(bench, queue):
    dead_letters = limited(bench, queue, **{"x-dead-letter-exchange": "dlx"})
    publish(bench, queue, b"a1", b"a2")
    first = consume(bench, queue, credit=1)
    settle(bench, first, b"a1", lambda location: queue.reject(location, False))
    queue.remove_consumer(first)
    give_back(bench, queue, first)
    second = consume(bench, queue)
    assert second.bodies == []

    dead_letters.bury()
    bench.settle()

    assert second.bodies == [b"a2"]


def test_a_message_that_expires_while_its_consumer_is_full_is_not_delivered(bench, queue):
    limited(bench, queue, **{"x-message-ttl": 10})
    consumer = consume(bench, queue, credit=1)
    publish(bench, queue, b"a1", b"a2")
    bench.advance(5)
    publish(bench, queue, b"a3")
    bench.advance(7)

    ack(bench, consumer, b"a1")

    assert consumer.bodies == [b"a3"]


def test_a_consumer_with_room_gets_the_rest_after_a_drop(bench, queue):
    limited(bench, queue, **{"x-max-length": 1})
    consumer = consume(bench, queue, credit=1)
    publish(bench, queue, *numbered(b"a", 1, 3))
    publish(bench, queue, *numbered(b"a", 4, 6))
    assert queue.ready_count == 1

    ack(bench, consumer, b"a1")

    assert consumer.bodies == [b"a6"]


def test_served_groups_are_forgotten_once_nothing_is_before_the_cursor(bench, queue):
    """Each was free while others waited. Without that, thousands of keys that never come again stay."""
    consumer = consume(bench, queue, credit=10)
    publish(bench, queue, b"a1")
    for number in range(500):
        bench.publish(queue, b"%d" % number, routing_key=b"key %d" % number)
    bench.settle()
    remembered = []

    while consumer.bodies:
        ack(bench, consumer, consumer.bodies[-1])
        remembered.append(queue.groups.lines.served_count())

    assert (max(remembered) > 400, remembered[-1], queue.groups.ready_count) == (True, 0, 0)


def test_channels_that_got_messages_leave_nothing_behind(bench, queue):
    """No consumer is there whose turn would serve them."""
    for _ in range(100):
        publish(bench, queue, b"a1", b"a2")
        location = get_for(queue, object())
        assert get_for(queue, object()) is None  # the first one alone may have the other message
        assert len(queue.groups.lines.due) == 1
        queue.ack(location)
        queue.ack(get_for(queue, object()))
        bench.settle()

    assert (len(queue.groups.lines.due), queue.groups.groups_out) == (0, 0)


def get_for(queue, taker):
    """Location of the message that a channel gets; None without one."""
    message = Message()
    queue.turn_to(taker)
    return message.describe()["location"] if queue.get(message, False) else None


@pytest.mark.parametrize("settle", ["delete", "requeue"])
def test_messages_are_settled_after_a_fault_of_the_disk(bench, queue, settle):
    consumer = consume(bench, queue, credit=2)
    publish(bench, queue, b"a1", b"b1", b"c1", b"d1")
    unacked = [*consumer.unacked]

    queue.groups.fence(OSError("cannot be read"))
    for location in unacked:
        getattr(queue.groups, settle)(location)

    assert (queue.groups.groups_out, queue.groups.lines.served_count()) == (0, 0)
