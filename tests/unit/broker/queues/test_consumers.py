"""The ring: whose turn it is among consumers that come, go and run out of credit."""
from hypothesis import given, strategies as st

from gomq_py.broker.queues.consumers import Consumer, ConsumerRing


class Able(Consumer):
    """Has ``room`` for messages."""

    def __init__(self, tag, priority=0, room=1):
        super().__init__(tag, priority=priority)
        self.room = room

    def capacity(self):
        return self.room


def ring_of(*consumers, single_active=False):
    ring = ConsumerRing(single_active)
    for consumer in consumers:
        ring.add(consumer)
    return ring


def turns(ring, count):
    """Tags of the next ``count`` turns; each consumer queues up again after its own."""
    tags = []
    for _ in range(count):
        consumer = ring.take_next()
        tags.append(consumer and consumer.tag)
        if consumer is not None:
            ring.offer(consumer)
    return tags


def test_turns_go_round():
    assert turns(ring_of(Able("a"), Able("b"), Able("c")), 7) == list("abcabca")


def test_an_empty_ring_has_nobody():
    assert turns(ConsumerRing(), 1) == [None]


def test_the_highest_priority_goes_first_whenever_it_came():
    low, high, middle = Able("low"), Able("high", 9), Able("middle", 5)
    ring = ring_of(low, high, middle)

    assert turns(ring, 2) == ["high", "high"]
    high.room = 0
    assert turns(ring, 2) == ["middle", "middle"]
    middle.room = 0
    assert turns(ring, 2) == ["low", "low"]


def test_who_has_no_room_is_passed_over_until_offered_again():
    a, b = Able("a"), Able("b")
    ring = ring_of(a, b)
    a.room = 0
    assert turns(ring, 3) == ["b", "b", "b"]

    a.room = 1
    ring.offer(a)

    assert sorted(turns(ring, 2)) == ["a", "b"]


def test_offering_twice_gives_one_turn():
    a, b = Able("a"), Able("b")
    ring = ring_of(a, b)

    ring.offer(a)
    ring.offer(a)

    assert turns(ring, 4) == list("abab")


def test_who_left_has_no_turn():
    a, b = Able("a"), Able("b")
    ring = ring_of(a, b)

    assert ring.remove(a) and not ring.remove(a)

    assert turns(ring, 2) == ["b", "b"] and ring.consumers == [b]


def test_a_single_active_consumer_keeps_the_rest_waiting_even_without_room():
    a, b = Able("a"), Able("b")
    ring = ring_of(a, b, single_active=True)
    a.room = 0

    ring.offer(b)

    assert turns(ring, 2) == [None, None] and ring.active is a


def test_the_next_in_order_of_priority_and_age_becomes_active():
    a, b, c = Able("a"), Able("b"), Able("c", 1)
    ring = ring_of(a, b, c, single_active=True)
    assert turns(ring, 2) == ["a", "a"]

    ring.remove(a)
    assert turns(ring, 2) == ["c", "c"]
    ring.remove(c)

    assert turns(ring, 2) == ["b", "b"]


@given(st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "room", "no room", "turn"]), st.integers(0, 5), st.integers(-1, 1)
    ),
    max_size=60,
))
def test_the_turn_is_always_somebody_of_highest_priority_with_room_and_everyone_gets_one(steps):
    consumers, ring = {}, ConsumerRing()
    for step, name, priority in steps:
        if step == "add" and name not in consumers:
            consumers[name] = Able(name, priority)
            ring.add(consumers[name])
        elif step == "remove" and name in consumers:
            ring.remove(consumers.pop(name))
        elif step in ("room", "no room") and name in consumers:
            consumers[name].room = int(step == "room")
            ring.offer(consumers[name])
        able = [consumer for consumer in consumers.values() if consumer.room]
        if step == "turn":
            best = [
                consumer.tag for consumer in able if consumer.priority == max(each.priority for each in able)
            ]
            assert sorted(turns(ring, len(best))) == sorted(best)
        assert ring.ready >= bool(able)
