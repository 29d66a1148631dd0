"""The plain queue: order, counts, turns, requeue, purge and its ends."""
import pytest

from gomq_py.broker.queues import cancelling, opened, queue as queue_module
from gomq_py.errors import AccessRefused
from gomq_py.hub.scheduler import SliceClock
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message
from tests.support.clocks import StepClock
from tests.support.no_switch import no_switch
from tests.support.queues import Bench, KeepingConsumer, message


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def queue(bench):
    return bench.queue()


def numbered(count):
    return [b"%d" % number for number in range(count)]


def taken(queue, no_ack=True):
    """All that basic.get gives."""
    got, each = [], Message()
    while queue.get(each, no_ack):
        got.append(each.get_body())
    return got


def test_messages_come_out_in_the_order_they_went_in(bench, queue):
    bench.publish(queue, *numbered(100))

    assert taken(queue) == numbered(100)


def test_publish_says_that_it_stored(bench, queue):
    assert bench.publish(queue, b"a", b"b") == [1, 1]
    assert (queue.ready_count, queue.unacked_count, queue.published) == (2, 0, 2)


def test_a_message_taken_counts_as_unacked_until_it_is_settled(bench, queue):
    bench.publish(queue, b"a", b"b")
    first = Message()

    queue.get(first, False)

    assert (queue.ready_count, queue.unacked_count) == (1, 1)
    queue.ack(first.describe()["location"])
    assert (queue.ready_count, queue.unacked_count) == (1, 0)


def test_a_requeued_message_goes_back_to_its_place_and_is_marked(bench, queue):
    bench.publish(queue, *numbered(3))
    consumer = KeepingConsumer(credit=2)
    queue.add_consumer(consumer)
    bench.settle()
    assert consumer.bodies == [b"0", b"1"]

    queue.requeue(consumer.unacked[0])

    again = Message()
    assert queue.get(again, True)
    assert (
        again.get_body() == b"0" and again.describe()["redelivered"]
        and again.describe()["delivery_count"] == 1
    )
    assert queue.get(again, True)
    assert again.get_body() == b"2" and not again.describe()["redelivered"]


def test_reject_without_requeue_drops(bench, queue):
    bench.publish(queue, b"a")
    got = Message()
    queue.get(got, False)

    queue.reject(got.describe()["location"], False)

    assert (queue.ready_count, queue.unacked_count) == (0, 0)


def test_get_from_an_empty_or_paused_queue_gives_nothing(bench, queue):
    assert not queue.get(Message(), True)

    bench.publish(queue, b"a")
    queue.paused = True

    assert not queue.get(Message(), True)


def test_a_consumer_gets_what_was_there_and_what_comes(bench, queue):
    consumer = KeepingConsumer(no_ack=True)
    bench.publish(queue, b"before")

    queue.add_consumer(consumer)
    bench.settle()
    bench.publish(queue, b"after")

    assert consumer.bodies == [b"before", b"after"]


def test_delivery_happens_at_the_end_of_the_read_without_a_switch(bench, queue):
    consumer = KeepingConsumer(no_ack=True)
    queue.add_consumer(consumer)
    bench.settle()

    with no_switch():
        bench.scheduler.begin(bench.now_ms)
        queue.publish(message(b"a"))
        assert consumer.bodies == []
        queue.publish(message(b"b"))
        bench.scheduler.finish()

    assert consumer.bodies == [b"a", b"b"] and consumer.turns[-1] == 2


def test_two_idle_consumers_and_a_slow_publisher_alternate_strictly(bench, queue):
    consumers = [KeepingConsumer(name) for name in ("left", "right")]
    for consumer in consumers:
        queue.add_consumer(consumer)
    bench.settle()

    for body in numbered(10):
        bench.publish(queue, body)

    assert [consumer.bodies for consumer in consumers] == [numbered(10)[0::2], numbered(10)[1::2]]


def test_they_alternate_with_a_prefetch_of_one_and_acks_too(bench, queue):
    consumers = [KeepingConsumer(name, credit=1) for name in ("left", "right")]
    for consumer in consumers:
        queue.add_consumer(consumer)
    bench.settle()

    for body in numbered(10):
        bench.publish(queue, body)
        for consumer in consumers:
            if consumer.unacked:
                consumer.ack()
                bench.settle()

    assert [consumer.bodies for consumer in consumers] == [numbered(10)[0::2], numbered(10)[1::2]]


def test_a_burst_is_shared_evenly(bench, queue):
    consumers = [KeepingConsumer(str(number)) for number in range(3)]
    for consumer in consumers:
        queue.add_consumer(consumer)
    bench.settle()

    bench.publish(queue, *numbered(30))

    assert [len(consumer.bodies) for consumer in consumers] == [10, 10, 10]


def flood(bench, queue, milliseconds, count=50):
    """``count`` messages in each millisecond, in a read of its own."""
    for _ in range(milliseconds):
        bench.now_ms += 1
        bench.publish(queue, *numbered(count))
        bench.settle()


def many(queue, count):
    """So many consumers of the queue, without acknowledgements."""
    consumers = [KeepingConsumer(str(number), no_ack=True) for number in range(count)]
    for consumer in consumers:
        queue.add_consumer(consumer)
    return consumers


def after_a_flood(bench, queue, count, milliseconds):
    """So many consumers that a flood has reached, and whose turns count from here on."""
    consumers = many(queue, count)
    flood(bench, queue, milliseconds)
    for consumer in consumers:
        consumer.turns.clear()
    return consumers


def test_in_a_flood_a_consumer_gets_many_at_a_time(bench, queue):
    """A write costs as much as many small messages, and 100 consumers would need a write for each."""
    consumers = after_a_flood(bench, queue, 100, 200)

    flood(bench, queue, 100)

    turns = sum(len(consumer.turns) for consumer in consumers)
    assert turns == 100, f"{turns} writes for 5000 messages"


def test_in_a_flood_nobody_gets_much_more_than_twice_what_others_have(bench, queue):
    consumers = many(queue, 40)

    for _ in range(100):
        flood(bench, queue, 1)
        counts = [len(consumer.bodies) for consumer in consumers]
        assert max(counts) <= 2 * sum(counts) / len(counts) + 2
        assert max(counts) - min(counts) <= 2 * 64

    assert sum(counts) == 100 * 50


def test_a_burst_is_no_flood_yet(bench, queue):
    """Many jobs at once, in a few reads: each consumer has one before anybody has a second one."""
    consumers = many(queue, 40)

    for _ in range(15):
        flood(bench, queue, 1, 30)
        counts = [len(consumer.bodies) for consumer in consumers]
        assert max(counts) - min(counts) <= 1


def test_after_a_flood_consumers_alternate_again(bench, queue):
    consumers = after_a_flood(bench, queue, 40, 100)
    bench.now_ms += 100

    flood(bench, queue, 200, 1)  # 1 a millisecond is none
    assert all(turn == 1 for consumer in consumers for turn in consumer.turns)
    assert [len(consumer.turns) for consumer in consumers] == [5] * 40


def test_a_clock_that_is_set_back_ends_a_flood(bench, queue):
    consumers = after_a_flood(bench, queue, 40, 100)
    bench.now_ms -= 3_600_000

    bench.publish(queue, *numbered(40))

    assert [consumer.turns for consumer in consumers] == [[1]] * 40


class Behind(KeepingConsumer):
    """Takes what it is told to each millisecond, as one whose socket is full in between."""

    def __init__(self, no_ack=True):
        super().__init__(no_ack=no_ack)
        self.room = 0

    def capacity(self):
        return self.room

    def deliver(self, limit):
        before = len(self.bodies)
        octets = super().deliver(min(limit, self.room))
        self.room -= len(self.bodies) - before
        return octets


def outrun(bench, queue, milliseconds, published, taken, octets=1):
    """So many messages are published in each millisecond, and so many taken by the one consumer. Returns
    whether the queue was outrun then, at the end of each.
    """
    if queue.ring is None:
        queue.add_consumer(Behind())
    consumer = queue.ring.consumers[0]
    answers = []
    for _ in range(milliseconds):
        bench.now_ms += 1
        consumer.room = taken
        queue.offer(consumer)
        bench.publish(queue, *[b"x" * octets] * published)
        bench.settle()
        answers.append(queue.is_outrun())
    return answers


def test_a_queue_is_outrun_when_consumers_are_behind_by_more_than_they_take_in_10_ms(bench, queue):
    outrun(bench, queue, 40, 50, 50)
    answers = outrun(bench, queue, 40, 100, 50)

    # 10 ms are 500 messages; that it is a flood is known 16 ms after there was a backlog
    assert answers.index(True) in range(10, 24) and all(answers[24:])
    assert queue.ready_count == 40 * 50

    answers = outrun(bench, queue, 40, 0, 50)
    assert answers.index(False) in range(28, 32) and not any(answers[31:])


def test_a_queue_whose_consumers_take_as_much_as_comes_is_not_outrun(bench, queue):
    assert not any(outrun(bench, queue, 100, 50, 50))


def test_a_queue_whose_consumers_take_few_is_not_outrun(bench, queue):
    """Those who work on messages are not waited for: publishers may leave them as much as they like."""
    assert not any(outrun(bench, queue, 100, 100, 15))
    assert queue.ready_count == 100 * 85


@pytest.mark.parametrize("published, taken, octets, is_outrun", [
    (12, 6, 2 * 1024, True), (12, 6, 1024, False), (2, 1, 16 * 1024, True), (2, 1, 8 * 1024, False),
])
def test_of_large_messages_consumers_take_fewer_and_are_not_slow(
        bench, queue, published, taken, octets, is_outrun):
    assert any(outrun(bench, queue, 100, published, taken, octets)) is is_outrun


def test_a_queue_of_large_messages_is_outrun_by_what_consumers_take_in_10_ms(bench, queue):
    outrun(bench, queue, 40, 6, 6, 4096)
    answers = outrun(bench, queue, 40, 12, 6, 4096)

    assert answers.index(True) in range(10, 27) and all(answers[27:])  # 60 messages
    assert not any(outrun(bench, queue, 60, 0, 6, 4096)[31:])


def test_a_queue_whose_consumer_takes_nothing_any_more_is_outrun_for_a_moment_at_the_most(bench, queue):
    outrun(bench, queue, 100, 100, 50)

    answers = outrun(bench, queue, 100, 100, 0)

    assert answers[0] and not any(answers[32:])


def test_a_queue_whose_consumer_gives_back_what_it_takes_is_not_outrun(bench, queue):
    """Nothing would be gained: who waited for it would wait for ever."""
    consumer = Behind(no_ack=False)
    queue.add_consumer(consumer)
    for _ in range(100):
        assert not any(outrun(bench, queue, 1, 100, 50))
        while consumer.unacked:
            queue.requeue(consumer.unacked.pop())
    assert queue.requeued == 100 * 50


def test_a_queue_without_consumers_is_not_outrun(bench, queue):
    assert outrun(bench, queue, 100, 100, 50)[-1]

    queue.remove_consumer(queue.ring.consumers[0])

    assert not queue.is_outrun()


def test_a_message_is_given_to_one_consumer_though_many_wait(bench, queue):
    consumers = [KeepingConsumer(str(number)) for number in range(50)]
    for consumer in consumers:
        queue.add_consumer(consumer)
    bench.settle()
    for consumer in consumers:
        consumer.turns.clear()

    bench.publish(queue, b"one")

    assert sum(len(consumer.turns) for consumer in consumers) == 1


def test_a_consumer_without_capacity_does_not_hold_up_the_others(bench, queue):
    stuck, free = KeepingConsumer("stuck", credit=1), KeepingConsumer("free")
    queue.add_consumer(stuck)
    queue.add_consumer(free)
    bench.settle()

    for body in numbered(10):
        bench.publish(queue, body)

    assert stuck.bodies == [b"0"] and free.bodies == numbered(10)[1:]


def test_an_acked_consumer_takes_part_again(bench, queue):
    consumer = KeepingConsumer(credit=2)
    queue.add_consumer(consumer)
    bench.publish(queue, *numbered(5))
    assert consumer.bodies == numbered(2)

    consumer.ack(2)
    bench.settle()

    assert consumer.bodies == numbered(4)


def test_a_deep_queue_is_delivered_in_turns_with_polls_between(bench, queue):
    """A turn ends at 256 KiB, here some 2600 messages of 100 octets; the rest waits for the loop."""
    bench.publish(queue, *numbered(10_000))
    consumer = KeepingConsumer(no_ack=True, at_most=500)
    queue.add_consumer(consumer)

    bench.loop.poll()
    first = len(consumer.bodies)
    bench.settle()

    assert 2_000 <= first <= 4_000
    assert consumer.bodies == numbered(10_000)


def test_higher_priority_is_served_first_while_it_has_capacity(bench, queue):
    low, high = KeepingConsumer("low"), KeepingConsumer("high", credit=3, priority=10)
    queue.add_consumer(low)
    queue.add_consumer(high)
    bench.settle()

    bench.publish(queue, *numbered(5))

    assert high.bodies == numbered(3) and low.bodies == numbered(5)[3:]


def test_a_single_active_consumer_is_served_alone_and_the_next_takes_over(bench):
    queue = bench.queue(arguments={"x-single-active-consumer": True})
    first, second = KeepingConsumer("first", credit=1), KeepingConsumer("second")
    queue.add_consumer(first)
    queue.add_consumer(second)
    bench.publish(queue, *numbered(3))
    assert (first.bodies, second.bodies) == ([b"0"], [])

    queue.remove_consumer(first)
    bench.settle()

    assert second.bodies == numbered(3)[1:]


def test_an_exclusive_consumer_stays_alone(bench, queue):
    queue.add_consumer(KeepingConsumer("only", exclusive=True))

    with pytest.raises(AccessRefused, match="queue 'q' in vhost '/' in exclusive use"):
        queue.add_consumer(KeepingConsumer("other"))


def test_an_exclusive_consumer_does_not_join_others(bench, queue):
    queue.add_consumer(KeepingConsumer("one"))

    with pytest.raises(AccessRefused):
        queue.add_consumer(KeepingConsumer("other", exclusive=True))


def test_the_last_consumer_to_leave_is_told_of(bench, queue):
    unused = []
    queue.on_unused = unused.append
    consumers = [KeepingConsumer("a"), KeepingConsumer("b")]
    for consumer in consumers:
        queue.add_consumer(consumer)

    queue.remove_consumer(consumers[0])
    assert unused == []
    queue.remove_consumer(consumers[1])

    assert unused == [queue] and queue.consumer_count == 0


def test_a_consumer_that_left_gets_nothing_more(bench, queue):
    consumer = KeepingConsumer()
    queue.add_consumer(consumer)
    bench.settle()

    queue.remove_consumer(consumer)
    bench.publish(queue, b"a")

    assert consumer.bodies == [] and consumer.queue is None


def test_a_held_queue_delivers_when_it_is_released(bench, queue):
    consumer = KeepingConsumer()
    queue.add_consumer(consumer)
    queue.hold_deliveries()
    bench.publish(queue, b"a")
    assert consumer.bodies == []

    queue.resume_deliveries()
    bench.settle()

    assert consumer.bodies == [b"a"]


def test_purge_drops_what_is_ready_and_leaves_what_is_unacked(bench, queue):
    consumer = KeepingConsumer(credit=2)
    queue.add_consumer(consumer)
    bench.publish(queue, *numbered(5))

    assert queue.purge() == 3

    assert (queue.ready_count, queue.unacked_count) == (0, 2)
    queue.requeue(consumer.unacked[0])
    assert queue.ready_count == 1


def test_delete_cancels_the_consumers_and_tells_how_many_were_ready(bench, queue):
    consumer = KeepingConsumer(credit=1)
    queue.add_consumer(consumer)
    bench.publish(queue, *numbered(3))

    assert queue.delete() == 2

    assert "deleted" in consumer.cancelled and consumer.queue is None
    assert bench.publish(queue, b"late") == [0]
    queue.ack(consumer.unacked[0])
    queue.requeue(consumer.unacked[0])
    assert (queue.ready_count, queue.unacked_count) == (0, 0)


def test_very_many_consumers_of_a_deleted_queue_are_cancelled_in_slices_in_their_order(
    bench, queue, monkeypatch
):
    monkeypatch.setattr(cancelling, "SliceClock", lambda: SliceClock(9.5, clock=StepClock(1)))
    told = []

    class Telling(KeepingConsumer):
        def cancel(self, reason):
            told.append(self.tag)

    consumers = [Telling(f"c{number}") for number in range(cancelling.FEW + 1)]
    for consumer in consumers:
        queue.add_consumer(consumer)
    bench.settle()

    with no_switch():
        queue.delete()
    counts = [len(told)]
    queue.remove_consumer(consumers[40])
    queue.offer(consumers[50])
    while bench.loop.poll():
        counts.append(len(told))

    assert queue.consumer_count == 0
    assert counts[:3] == [0, 10, 20]
    assert told == [f"c{number}" for number in range(len(consumers)) if number != 40]
    assert all(consumer.queue is None and consumer.bodies == [] for consumer in consumers)


def test_readers_that_waited_for_files_are_told_in_slices_and_before_consumers(bench, queue, monkeypatch):
    monkeypatch.setattr(opened, "SliceClock", lambda: SliceClock(9.5, clock=StepClock(1)))
    bench.publish(queue, b"x")
    told, consumer = [], KeepingConsumer(credit=1)
    for number in range(25):
        queue.when_opened(lambda number=number: told.append((number, list(consumer.bodies))))
    queue.add_consumer(consumer)

    counts = []
    while bench.loop.poll():
        counts.append(len(told))

    assert told == [(number, []) for number in range(25)]
    assert counts[:3] == [10, 20, 25]
    assert consumer.bodies == [b"x"]


def test_reader_whose_fault_it_is_costs_no_other_reader_and_not_the_queue(bench, queue, caplog):
    told = []
    queue.when_opened(lambda: 1 // 0)
    queue.when_opened(lambda: told.append(True))

    queue.wake()
    bench.settle()

    assert told == [True] and not queue.closed
    assert "a reader that waited for files" in caplog.text


def test_a_fault_of_the_store_closes_the_queue_and_cancels_its_consumers(bench, queue, caplog):
    consumer = KeepingConsumer()
    queue.add_consumer(consumer)
    bench.publish(queue, b"a")

    queue.store.fence(StoreError("msgs.1", 7, "input/output error"))

    assert queue.closed and "input/output error" in caplog.text and consumer.cancelled
    assert bench.publish(queue, b"b") == [0]
    assert not queue.get(Message(), True)


def test_a_full_disk_refuses_and_the_queue_stays_open(bench, queue, monkeypatch):
    monkeypatch.setattr(
        bench.pool, "take", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    assert bench.publish(queue, b"a") == [0]
    monkeypatch.undo()

    assert bench.publish(queue, b"b") == [1]

    assert taken(queue) == [b"b"]


def test_a_full_disk_is_told_again_after_a_while_and_when_the_clock_is_put_back(
        bench, queue, monkeypatch, caplog):
    """On 9594ec91 the interpreted broker was silent until the clock was where it had been."""
    monkeypatch.setattr(
        bench.pool, "take", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    told = []
    for later_ms in (0, 1, queue_module.COMPLAIN_MS, -3_600_000):
        bench.now_ms += later_ms
        bench.publish(queue, b"a")
        told.append(caplog.text.count("refuses messages"))

    assert told == [1, 1, 2, 3]


class Unfed(KeepingConsumer):
    """Is given nothing, as if the queue's counts promised more than there is."""

    def deliver(self, limit):
        self.turns.append(0)
        assert len(self.turns) < 1000, "asked again and again"
        return 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_consumers_that_are_given_nothing_are_not_asked_again_before_something_changes(bench, queue, count):
    bench.publish(queue, b"0")
    consumers = [Unfed() for _ in range(count)]
    for consumer in consumers:
        queue.add_consumer(consumer)

    polls = 0
    while bench.loop.poll():
        polls += 1
        assert polls < 100, "the hub has no rest"
    asked = sum(len(consumer.turns) for consumer in consumers)
    bench.publish(queue, b"1")

    assert asked <= 3 * count
    assert sum(len(consumer.turns) for consumer in consumers) > asked
