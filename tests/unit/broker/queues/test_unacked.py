"""The unacked ring: tags, multiple, holders, growth, and entries that move aside."""
import pytest
from hypothesis import given, strategies as st

from gomq_py.broker.queues.unacked import Unacked
from gomq_py.broker.queues.queue import Queue
from gomq_py.hub.scheduler import Scheduler

ACK, REQUEUE = 0, 1
LONG = 2500


class RecordingQueue(Queue):
    """Notes what it is told instead of keeping messages."""

    def __init__(self):
        super().__init__("q", "/", None, Scheduler())
        self.told = []

    def ack(self, location):
        self.told.append(("settle", location))

    def requeue(self, location):
        self.told.append(("requeue", location))

    def reject(self, location, requeue):
        self.told.append(("requeue" if requeue else "drop", location))


@pytest.fixture
def queue():
    return RecordingQueue()


@pytest.fixture
def unacked():
    return Unacked()


def deliver(unacked, holder, locations):
    return [unacked.add(holder, location, 10, 1000) for location in locations]


def test_tags_count_up_from_one(unacked, queue):
    holder = unacked.make_holder(queue, object())

    assert deliver(unacked, holder, [11, 12, 13]) == [1, 2, 3]
    assert (unacked.count, unacked.body_octets, holder.unacked_count) == (3, 30, 3)


def test_an_ack_settles_its_message_and_no_other(unacked, queue):
    holder = unacked.make_holder(queue, object())
    deliver(unacked, holder, [11, 12, 13])

    assert unacked.settle(2, False)

    assert queue.told == [("settle", 12)]
    assert (unacked.count, unacked.body_octets, holder.unacked_count) == (2, 20, 2)


def test_an_ack_of_many_settles_in_order_up_to_its_tag(unacked, queue):
    deliver(unacked, unacked.make_holder(queue, object()), [11, 12, 13, 14])

    assert unacked.settle(3, True)

    assert queue.told == [("settle", 11), ("settle", 12), ("settle", 13)]
    assert unacked.count == 1


def test_what_is_outstanding_is_found_tag_by_tag_wherever_it_lies(unacked, queue):
    """Some of it has moved aside: the ring is full and mostly settled."""
    deliver(unacked, unacked.make_holder(queue, object()), range(1, 3001))
    kept = [7, 8, 900, 1500, 2999]
    for tag in range(1, 3001):
        if tag not in kept:
            unacked.settle(tag, False)
    deliver(unacked, unacked.make_holder(queue, object()), range(3001, 9000))
    found, tag = [], 0

    while tag < 3000:
        tag = unacked.next_outstanding(tag)
        found.append(tag)

    assert found == [*kept, 3001]
    assert unacked.next_outstanding(8998) == 8999
    assert unacked.next_outstanding(8999) == unacked.next_outstanding(1 << 60) == 0


def test_what_is_taken_in_slices_is_told_to_the_taker_and_not_to_the_queue(unacked, queue):
    deliver(unacked, unacked.make_holder(queue, object()), [11, 12, 13, 14])
    taken = []

    assert unacked.take_some(3, lambda queue, location: taken.append(location), 2)
    assert not unacked.take_some(3, lambda queue, location: taken.append(location), 2)

    assert taken == [11, 12, 13] and queue.told == [] and unacked.count == 1


def test_tag_zero_and_multiple_settles_everything(unacked, queue):
    deliver(unacked, unacked.make_holder(queue, object()), [11, 12, 13])

    assert unacked.settle(0, True)

    assert unacked.count == 0 and len(queue.told) == 3


def test_tag_zero_and_multiple_with_nothing_outstanding_is_fine(unacked):
    assert unacked.settle(0, True)


@pytest.mark.parametrize("tag, multiple", [
    (0, False), (4, False), (4, True), (2, False), (2, True), (2 ** 64 - 1, False)
])
def test_an_unknown_tag_is_refused_and_changes_nothing(unacked, queue, tag, multiple):
    deliver(unacked, unacked.make_holder(queue, object()), [11, 12, 13])
    unacked.settle(2, False)
    queue.told.clear()

    assert not unacked.settle(tag, multiple)

    assert queue.told == [] and unacked.count == 2


def test_a_second_ack_of_a_tag_is_unknown(unacked, queue):
    deliver(unacked, unacked.make_holder(queue, object()), [11])
    unacked.settle(1, False)

    assert not unacked.settle(1, False)


def test_reject_requeues_or_drops(unacked, queue):
    deliver(unacked, unacked.make_holder(queue, object()), [11, 12])

    assert unacked.reject(1, False, True)
    assert unacked.reject(2, False, False)

    assert queue.told == [("requeue", 11), ("drop", 12)]


def test_deliveries_without_ack_use_up_tags_but_no_memory(unacked, queue):
    assert [unacked.skip() for _ in range(3)] == [1, 2, 3]
    deliver(unacked, unacked.make_holder(queue, object()), [11])
    assert unacked.skip() == 5

    assert not unacked.is_outstanding(3) and unacked.is_outstanding(4) and not unacked.is_outstanding(5)
    assert not unacked.settle(5, False)


@pytest.mark.parametrize("settle", [
    lambda unacked: unacked.settle(1, False), lambda unacked: unacked.reject(1, False, 0),
    lambda unacked: unacked.take(1, lambda queue, location: None), lambda unacked: None])
def test_deliveries_are_counted_once_however_they_are_settled(unacked, queue, settle):
    deliver(unacked, unacked.make_holder(queue, object()), [11, 12])
    unacked.skip()

    settle(unacked)

    assert unacked.count + unacked.acked_count + unacked.returned_count == 2


def test_basic_get_is_not_counted_as_the_consumers(unacked, queue):
    getter = unacked.make_holder(queue, None)
    deliver(unacked, getter, [11])

    assert unacked.make_holder(queue, None) is getter
    assert (unacked.count, unacked.consumer_count) == (1, 0)


def test_a_slot_is_used_again_once_its_messages_are_settled(unacked, queue):
    first = unacked.make_holder(queue, object())
    deliver(unacked, first, [11])
    unacked.let_go(first)
    second = unacked.make_holder(queue, object())
    unacked.settle(1, False)
    third = unacked.make_holder(queue, object())

    assert (first.slot, second.slot, third.slot) == (0, 1, 0)


def test_each_tag_goes_back_to_the_queue_it_came_from(unacked, queue):
    other = RecordingQueue()
    deliver(unacked, unacked.make_holder(queue, object()), [11])
    deliver(unacked, unacked.make_holder(other, object()), [21])

    unacked.settle(0, True)

    assert queue.told == [("settle", 11)] and other.told == [("settle", 21)]


def test_settle_some_begins_with_the_oldest_and_says_whether_any_are_left(unacked, queue):
    deliver(unacked, unacked.make_holder(queue, object()), [11, 12, 13, 14])
    unacked.settle(2, False)
    queue.told.clear()

    assert unacked.settle_some(3, REQUEUE, 1)
    assert not unacked.settle_some(3, REQUEUE, 5)
    assert queue.told == [("requeue", 11), ("requeue", 13)]

    assert not unacked.settle_some(4, ACK, 1)
    assert not unacked.settle_some(4, ACK, 1)
    assert queue.told[2:] == [("settle", 14)]


def test_long_is_what_spans_more_than_is_settled_at_once(unacked, queue):
    holder = unacked.make_holder(queue, object())
    deliver(unacked, holder, range(1, LONG + 1))
    assert not unacked.is_long(0) and not unacked.is_long(LONG)

    deliver(unacked, holder, [LONG + 1])
    assert unacked.is_long(0) and unacked.is_long(LONG + 1) and unacked.is_long(1 << 60)
    assert not unacked.is_long(LONG)


def test_entries_tell_age_size_and_holder(unacked, queue):
    holder = unacked.make_holder(queue, object())
    deliver(unacked, holder, [11, 12])

    assert unacked.entries(10) == [(1, holder, 11, 1000, 10), (2, holder, 12, 1000, 10)]
    assert unacked.entries(1) == [(1, holder, 11, 1000, 10)]


def test_one_forgotten_message_does_not_make_the_ring_grow(unacked, queue):
    """300 000 later deliveries are acked; memory_octets counts ring and rows that moved aside."""
    holder = unacked.make_holder(queue, object())
    forgotten = deliver(unacked, holder, [7])[0]

    for location in range(8, 300_000):
        unacked.settle(unacked.add(holder, location, 10, 1000), False)

    assert unacked.memory_octets() < 64 * 1024
    assert unacked.is_outstanding(forgotten) and unacked.entries(1)[0][0] == forgotten
    assert unacked.settle(forgotten, False)
    assert unacked.count == 0 and queue.told[-1] == ("settle", 7)


def test_a_million_outstanding_messages_cost_24_octets_each(unacked, queue):
    holder = unacked.make_holder(queue, object())

    for location in range(1, 1_000_001):
        unacked.add(holder, location, 10, 1000)

    assert unacked.memory_octets() <= 24 * 1_000_000


def test_the_ring_is_given_back_when_all_is_settled(unacked, queue):
    holder = unacked.make_holder(queue, object())
    deliver(unacked, holder, range(1, 100_000))

    unacked.settle(0, True)

    assert unacked.memory_octets() < 64 * 1024


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 40)),
        st.tuples(st.just("burst"), st.integers(100, 3000)),
        st.just(("skip", 0)),
        st.tuples(
            st.sampled_from(["ack", "ack to", "nack", "nack to", "requeue some", "ack most"]),
            st.integers(0, 5000),
        ),
    ),
    max_size=40,
)


@given(operations)
def test_the_ring_equals_a_dict_of_tags(steps):
    """Any mix of deliveries and settlements, dense and sparse,
    gives what a plain dict of outstanding tags gives.
    """
    queue, unacked = RecordingQueue(), Unacked()
    holder = unacked.make_holder(queue, object())
    model, told, tag = {}, [], 0
    for step, number in steps:
        if step in ("add", "burst"):
            for _ in range(number):
                tag += 1
                assert unacked.add(holder, tag + 100, 1, 0) == tag
                model[tag] = tag + 100
        elif step == "skip":
            tag += 1
            assert unacked.skip() == tag
        elif step == "requeue some":
            through = (number * 7919) % (tag + 1)
            some = [each for each in sorted(model) if each <= through]
            assert unacked.settle_some(through, REQUEUE, number) == (len(some) > number)
            told += [("requeue", model.pop(each)) for each in some[:number]]
        elif step == "ack most":
            for each in sorted(model):
                if each % 97 != number % 97:
                    assert unacked.settle(each, False)
                    told.append(("settle", model.pop(each)))
        else:
            verb = "settle" if step.startswith("ack") else "requeue"
            multiple = step.endswith("to")
            wanted = min(number, tag) if tag else 0
            fine = wanted in model or (multiple and wanted == 0)
            done = [
                each
                for each in sorted(model) if each == wanted or (multiple and (each < wanted or wanted == 0))
            ] if fine else []
            told += [(verb, model.pop(each)) for each in done]
            assert (
                unacked.settle(wanted, multiple) if verb == "settle"
                else unacked.reject(wanted, multiple, True)
            ) == fine
        assert unacked.count == len(model) == holder.unacked_count
    assert queue.told == told
    assert [entry[0] for entry in unacked.entries(1_000_000)] == sorted(model)
