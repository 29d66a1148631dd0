"""A queue with groups and a limit of 1 delivers the messages of one group in order, and one at a time.
test_group_queue_bound has no limit.
"""
import pytest

from gomq_py.broker.policies.queue_settings import QueueSettings
from gomq_py.broker.queues.limits import QueueLimits
from gomq_py.broker.queues.peeking import browse
from gomq_py.storage.message import Message
from tests.support.queues import Bench, KeepingConsumer


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def queue(bench):
    return bench.group_queue(by=b"", limit=1)


def publish(bench, queue, *bodies, **fields):
    """Publish bodies such as ``a1``, each into the group of its first letter; ``-`` is none."""
    for body in bodies:
        group = b"" if body[:1] == b"-" else body[:1]
        bench.publish(queue, body, routing_key=group, **fields)
    bench.settle()


def consume(bench, queue, credit=None, **options):
    consumer = KeepingConsumer(credit=credit, **options)
    queue.add_consumer(consumer)
    bench.settle()
    return consumer


def ack(bench, consumer, body):
    settle(bench, consumer, body, consumer.queue.ack)


def settle(bench, consumer, body, how):
    at = consumer.bodies.index(body)
    del consumer.bodies[at], consumer.redelivered[at]
    queue = consumer.queue
    how(consumer.unacked.pop(at))
    queue.offer(consumer)
    bench.settle()


def get(queue):
    message = Message()
    return message.get_body() if queue.get(message, False) else None


def test_one_message_of_a_group_is_delivered_at_a_time(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1", b"a3", b"b2")

    consumer = consume(bench, queue)

    assert consumer.bodies == [b"a1", b"b1"]
    ack(bench, consumer, b"a1")
    assert consumer.bodies == [b"b1", b"a2"]
    ack(bench, consumer, b"a2")
    ack(bench, consumer, b"b1")
    assert consumer.bodies == [b"a3", b"b2"]
    assert (queue.ready_count, queue.unacked_count) == (0, 2)


def test_groups_go_to_any_consumer_that_has_room(bench, queue):
    first, second = (consume(bench, queue, credit=1) for _ in range(2))
    publish(bench, queue, b"a1", b"a2", b"b1", b"b2")
    assert (first.bodies, second.bodies) == ([b"a1"], [b"b1"])

    ack(bench, second, b"b1")
    assert second.bodies == [b"b2"]
    ack(bench, second, b"b2")
    ack(bench, first, b"a1")

    assert first.bodies + second.bodies == [b"a2"]


def test_messages_without_a_key_are_free(bench, queue):
    publish(bench, queue, b"-1", b"a1", b"-2", b"a2", b"-3")

    consumer = consume(bench, queue)

    assert consumer.bodies == [b"-1", b"a1", b"-2", b"-3"]


def test_a_stuck_group_holds_up_itself_only(bench, queue):
    publish(bench, queue, b"a1")
    stuck = consume(bench, queue, credit=1)
    publish(bench, queue, *[b"a%d" % number for number in range(2, 200)], b"b1", b"c1")

    other = consume(bench, queue)

    assert stuck.bodies == [b"a1"]
    assert other.bodies == [b"b1", b"c1"]
    assert queue.groups.waiting.count == 198


def test_the_group_that_waits_longest_is_first(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"a3", b"b1", b"b2", b"c1")
    consumer = consume(bench, queue, credit=1)
    taken = []
    while consumer.bodies:
        taken.append(consumer.bodies[0])
        ack(bench, consumer, consumer.bodies[0])

    assert taken == [b"a1", b"b1", b"c1", b"a2", b"b2", b"a3"]


def test_a_returned_message_is_the_next_of_its_group(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1")
    consumer = consume(bench, queue, credit=2)

    queue.remove_consumer(consumer)
    for location in consumer.unacked:
        queue.requeue(location)
    again = consume(bench, queue)

    assert again.bodies == [b"a1", b"b1"]
    assert again.redelivered == [True, True]
    ack(bench, again, b"a1")
    assert again.bodies == [b"b1", b"a2"]
    assert again.redelivered == [True, False]


def test_a_rejected_message_makes_room_for_the_next(bench, queue):
    publish(bench, queue, b"a1", b"a2")
    consumer = consume(bench, queue)

    settle(bench, consumer, b"a1", lambda location: queue.reject(location, False))

    assert consumer.bodies == [b"a2"]


def test_get_shows_only_groups_that_are_not_out(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1")

    assert [get(queue), get(queue), get(queue)] == [b"a1", b"b1", None]
    assert queue.ready_count == 1


def test_a_consumer_without_acks_gets_each_group_in_order(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1", b"a3")

    consumer = consume(bench, queue, no_ack=True)

    assert consumer.bodies == [b"a1", b"b1", b"a2", b"a3"]
    assert (queue.ready_count, queue.unacked_count) == (0, 0)


def test_a_large_message_is_not_handed_over_past_its_group(bench, queue):
    publish(bench, queue, b"a1")
    consume(bench, queue, credit=1)
    free = consume(bench, queue, no_ack=True)

    publish(bench, queue, b"a" + bytes(1 << 20))

    assert free.bodies == []


def test_only_one_consumer_is_active_with_groups_too(bench):
    queue = bench.group_queue(by=b"", limit=1, arguments={"x-single-active-consumer": True})
    first, second = (consume(bench, queue) for _ in range(2))

    publish(bench, queue, b"a1", b"a2", b"b1")

    assert (first.bodies, second.bodies) == ([b"a1", b"b1"], [])
    queue.remove_consumer(first)
    for location in first.unacked:
        queue.requeue(location)
    bench.settle()
    assert second.bodies == [b"a1", b"b1"]


def test_a_purge_drops_waiting_messages_and_no_unacked_ones(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1", b"a3")
    consumer = consume(bench, queue, credit=1)

    assert queue.purge() == 3

    assert (queue.ready_count, queue.unacked_count) == (0, 1)
    consumer.credit = 2
    queue.offer(consumer)
    publish(bench, queue, b"a4", b"b2")
    ack(bench, consumer, b"a1")
    ack(bench, consumer, b"b2")
    assert consumer.bodies == [b"a4"]


def test_a_purge_lets_a_returned_message_go_with_its_group(bench, queue):
    publish(bench, queue, b"a1", b"a2")
    consumer = consume(bench, queue)
    queue.remove_consumer(consumer)
    queue.requeue(consumer.unacked[0])

    queue.purge()
    publish(bench, queue, b"a3")

    assert get(queue) == b"a3"


def test_a_part_is_purged_from_the_oldest_message_on(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1", b"a3")
    consumer = consume(bench, queue, credit=1)
    queue.remove_consumer(consumer)

    assert queue.purge_some(2) == 2

    queue.ack(consumer.unacked[0])
    assert get(queue) == b"a3"


# limits

class Graveyard:
    """Dead letters: those sent stay unacked until ``bury``."""

    def __init__(self):
        self.sent = []

    def send(self, queue, location, reason):
        self.sent.append((queue, location, reason))

    def bury(self):
        for queue, location, _ in self.sent:
            queue.drop(location)
        self.sent.clear()


def limited(bench, queue, **arguments):
    dead_letters = Graveyard()
    limits = QueueLimits(queue, dead_letters, bench.timers, None)
    limits.configure(QueueSettings(arguments, {}))
    queue.limits = limits
    return dead_letters


def test_the_oldest_message_of_a_stuck_group_is_dropped_first(bench, queue):
    publish(bench, queue, b"a1")
    consume(bench, queue, credit=1)
    publish(bench, queue, b"a2", b"b1", b"a3")
    limited(bench, queue, **{"x-max-length": 2})
    bench.settle()

    assert [get(queue), get(queue)] == [b"b1", None]
    assert queue.ready_count == 1


def test_messages_behind_an_expired_one_of_their_group_go_on(bench, queue):
    limited(bench, queue, **{"x-message-ttl": 10})
    publish(bench, queue, b"a1", b"b1")
    bench.advance(5)
    publish(bench, queue, b"a2")
    bench.advance(7)

    assert [get(queue), get(queue)] == [b"a2", None]


def test_a_dead_letter_holds_its_group_until_its_copy_is_safe(bench, queue):
    dead_letters = limited(bench, queue, **{"x-dead-letter-exchange": "dlx"})
    publish(bench, queue, b"a1", b"a2")
    consumer = consume(bench, queue)
    settle(bench, consumer, b"a1", lambda location: queue.reject(location, False))
    assert consumer.bodies == []

    dead_letters.bury()
    bench.settle()

    assert consumer.bodies == [b"a2"]


# limits of the memory

def test_the_cursor_rests_when_too_many_messages_wait(bench, queue):
    publish(bench, queue, b"a1")
    consumer = consume(bench, queue, credit=2)
    queue.groups.waiting_max = 3
    publish(bench, queue, b"a2", b"a3", b"a4", b"a5", b"b1")
    assert consumer.bodies == [b"a1"]
    assert queue.groups.is_full

    ack(bench, consumer, b"a1")

    assert consumer.bodies == [b"a2", b"b1"]


def test_further_groups_wait_when_too_many_are_out(bench, queue):
    queue.groups.groups_max = 2
    publish(bench, queue, b"a1", b"b1", b"c1", b"a2")
    consumer = consume(bench, queue)
    assert consumer.bodies == [b"a1", b"b1"]

    ack(bench, consumer, b"b1")

    assert consumer.bodies == [b"a1", b"c1"]


def test_a_long_stuck_group_is_passed_over_in_turns(bench, queue):
    publish(bench, queue, b"a1")
    consume(bench, queue, credit=1)
    bench.publish(queue, *[b"a"] * 5000, routing_key=b"a")
    bench.publish(queue, b"b1", routing_key=b"b")

    free = KeepingConsumer()
    queue.add_consumer(free)
    turns = 0
    while bench.loop.poll():
        turns += 1

    assert free.bodies == [b"b1"]
    assert turns >= 3


# out of turn

def browsed(queue):
    browser, message, shown = browse(queue), Message(), []
    while browser.next(message):
        shown.append((message.get_body(), message.describe()["location"]))
    browser.close()
    return shown


def test_waiting_messages_are_browsed_by_age(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1", b"b2", b"a3")
    consume(bench, queue, credit=2)

    assert [body for body, _ in browsed(queue)] == [b"a2", b"b2", b"a3"]


def test_a_waiting_message_is_picked_and_put_back_at_its_place(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"a3", b"b1", b"a4")
    consumer = consume(bench, queue)
    places = dict(browsed(queue))

    assert queue.store.pick(places[b"a3"])
    assert not queue.store.pick(places[b"a3"])
    assert [body for body, _ in browsed(queue)] == [b"a2", b"a4"]
    queue.store.unpick(places[b"a3"])

    for body in (b"a1", b"a2", b"a3"):
        ack(bench, consumer, body)
    assert consumer.bodies == [b"b1", b"a4"]


def test_a_group_whose_messages_were_picked_goes_on(bench, queue):
    publish(bench, queue, b"a1", b"a2", b"b1")
    consumer = consume(bench, queue)
    places = dict(browsed(queue))
    assert queue.store.pick(places[b"a2"])

    ack(bench, consumer, b"a1")
    queue.store.unpick(places[b"a2"])
    queue.wake()
    bench.settle()

    assert consumer.bodies == [b"b1", b"a2"]


def test_operators_see_groups_out_the_longest_wait_and_the_deepest_group(bench, queue):
    publish(bench, queue, b"a1", b"b1")
    consume(bench, queue)
    began_ms = bench.now_ms
    publish(bench, queue, b"a2")
    bench.now_ms += 1000
    publish(bench, queue, b"b2", b"b3")

    groups = queue.groups
    assert (groups.groups_out, groups.waiting.group_count) == (2, 2)
    assert groups.longest_wait_ms() == began_ms
    assert groups.deepest() == (b"b", 2)
