"""Consistent hash exchange: who gets which key, and how little that changes."""
from collections import Counter
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.broker.exchanges.consistent_hash import MAX_WEIGHT, Ring, jump
from gomq_py.broker.routing.routing import with_properties
from gomq_py.content.properties import Properties
from gomq_py.errors import PreconditionFailed
from tests.support.model import make_vhost, routed

KEYS = [f"key-{number}" for number in range(2000)]


def hashing(weights, arguments=None, headers=None):
    vhost, _, _ = make_vhost()
    vhost.declare_exchange("x", "x-consistent-hash", arguments=arguments)
    for name, weight in weights.items():
        vhost.declare_queue(name)
        vhost.bindings.bind_queue(name, "x", str(weight))
    return vhost


def placement(vhost):
    return {key: routed(vhost, "x", key) for key in KEYS}


@pytest.fixture(params=["ring", "jump"])
def arguments(request):
    return {"x-algorithm": request.param}


def test_each_message_goes_to_one_destination_and_equal_keys_to_the_same(arguments):
    vhost = hashing({"a": 10, "b": 10, "c": 10}, arguments)

    placed = placement(vhost)

    assert all(len(queues) == 1 for queues in placed.values())
    assert placed == placement(vhost)
    assert len({queues[0] for queues in placed.values()}) == 3


def test_weight_is_the_share(arguments):
    vhost = hashing({"light": 100, "heavy": 300}, arguments)

    shares = Counter(queues[0] for queues in placement(vhost).values())

    assert 0.6 < shares["heavy"] / len(KEYS) < 0.9


def test_one_that_goes_takes_only_its_own_keys_along():
    vhost = hashing({"a": 50, "b": 50, "c": 50}, {"x-algorithm": "ring"})
    before = placement(vhost)

    vhost.bindings.unbind_queue("b", "x", "50")
    after = placement(vhost)

    assert all(after[key] == before[key] for key in KEYS if before[key] != ["b"])
    vhost.bindings.bind_queue("b", "x", "50")
    assert placement(vhost) == before


def test_last_one_that_goes_takes_only_its_own_keys_along_with_jump():
    vhost = hashing({"a": 1, "b": 1, "c": 1}, {"x-algorithm": "jump"})
    before = placement(vhost)

    vhost.bindings.unbind_queue("c", "x", "1")
    after = placement(vhost)

    assert all(after[key] == before[key] for key in KEYS if before[key] != ["c"])


def test_order_of_binding_does_not_matter(arguments):
    one, other = hashing({"a": 5, "b": 5}, arguments), hashing({"b": 5, "a": 5}, arguments)

    assert placement(one) == placement(other)


def test_header_can_be_hashed_instead(arguments):
    vhost = hashing({"a": 10, "b": 10, "c": 10}, {**arguments, "x-hash-on": "id"})

    assert vhost.exchange("x").needs_headers
    by_header = {number: routed(vhost, "x", f"key-{number}", {"id": "same"}) for number in range(50)}
    assert len({tuple(queues) for queues in by_header.values()}) == 1
    assert len({tuple(routed(vhost, "x", "k", {"id": number})) for number in range(50)}) == 3
    assert len(routed(vhost, "x", "k", None)) == 1


def test_nobody_bound_gets_nothing(arguments):
    assert routed(hashing({}, arguments), "x", "k") == []


def test_queue_bound_twice_and_unbound_once_stays(arguments):
    vhost = hashing({"a": 3}, arguments)
    vhost.bindings.bind_queue("a", "x", "5")

    vhost.bindings.unbind_queue("a", "x", "3")
    assert routed(vhost, "x", "k") == ["a"]
    vhost.bindings.unbind_queue("a", "x", "5")

    assert routed(vhost, "x", "k") == []


@pytest.mark.parametrize("weight", ["", "0", "-1", "1.5", "x", "10001", "٣", "99999999999999"])
def test_binding_key_must_be_a_weight(weight):
    vhost = hashing({})
    vhost.declare_queue("q")

    with pytest.raises(PreconditionFailed, match="binding key"):
        vhost.bindings.bind_queue("q", "x", weight)


@pytest.mark.parametrize("wrong", [
    {"x-algorithm": "best"}, {"x-algorithm": 5}, {"x-hash-on": 5}, {"hash-header": True},
])
def test_wrong_argument_is_refused(wrong):
    vhost, _, _ = make_vhost()

    with pytest.raises(PreconditionFailed, match=next(iter(wrong))):
        vhost.declare_exchange("x", "x-consistent-hash", arguments=wrong)


@pytest.mark.parametrize(("arguments", "text"), [
    ({"hash-property": "priority"}, "Unsupported property: priority"),
    ({"hash-property": 5}, "Unsupported property: 5"),
    (
        {"hash-property": "message_id", "hash-header": "h"},
        "hash-header and hash-property are mutually exclusive",
    ),
    (
        {"hash-property": "message_id", "x-hash-on": "h"},
        "hash-header and hash-property are mutually exclusive",
    ),
])
def test_wrong_property_is_refused_in_rabbitmqs_words(arguments, text):
    vhost, _, _ = make_vhost()

    with pytest.raises(PreconditionFailed) as refused:
        vhost.declare_exchange("x", "x-consistent-hash", arguments=arguments)
    assert refused.value.text == text


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_property_can_be_hashed_instead(arguments, name):
    vhost = hashing({"a": 10, "b": 10, "c": 10}, {**arguments, "hash-property": name})
    assert vhost.exchange("x").needs_headers and vhost.needs_properties

    def placed(key, value):
        properties = Properties(**{name: value})
        return routed(vhost, "x", key, with_properties({"h": 1}, properties))

    assert len(
        {tuple(placed(f"key-{number}", 77 if name == "timestamp" else "same")) for number in range(50)}
    ) == 1
    assert (
        len({tuple(placed("k", number if name == "timestamp" else str(number))) for number in range(50)}) == 3
    )
    assert len(routed(vhost, "x", "k", None)) == 1


def test_default_algorithm_is_the_brokers():
    vhost, factory, _ = make_vhost()
    factory.exchange_defaults["consistent_hash_algorithm"] = "jump"
    vhost.declare_exchange("default", "x-consistent-hash")
    vhost.declare_exchange("jump", "x-consistent-hash", arguments={"x-algorithm": "jump"})
    for name in "abc":
        vhost.declare_queue(name)
        for exchange in ("default", "jump"):
            vhost.bindings.bind_queue(name, exchange, "1")

    assert [routed(vhost, "default", key) for key in KEYS] == [routed(vhost, "jump", key) for key in KEYS]


def test_ring_is_drawn_with_crc32():
    vhost = hashing({"a": 1, "b": 1})
    points = sorted((crc32(name.encode()), name[0]) for name in ("a.0", "b.0"))

    for key in KEYS[:200]:
        expected = next((name for point, name in points if point >= crc32(key.encode())), points[0][1])
        assert routed(vhost, "x", key) == [expected]


def test_jump_is_the_published_algorithm():
    """Values that any right implementation gives: a key stays or moves to the new last bucket."""
    assert [jump(0, 1), jump(0xDEADBEEF, 1)] == [0, 0]
    for key in range(0, 1 << 64, 1 << 57):
        buckets = [jump(key, count) for count in range(1, 40)]
        assert all(
            later == earlier or later == count
            for count, (earlier, later) in enumerate(zip(buckets, buckets[1:]), 1)
        )


class Destination:
    def __init__(self, name):
        self.name = name


# Two of one name: a queue, and an exchange or the queue that came after it.
# Two more of names with points that meet.
DESTINATIONS = [Destination(name) for name in ("a", "a", "b", "\udcff", "59c33016", "48042b1d")]


def owner_by_looking_at_all(bound, point):
    """Whoever has the next point; of those of one name the one that came first and is heavy enough."""
    points = {}
    for destination, weight in bound:
        for i in range(weight):
            owner = f"{destination.name}.{i}".encode("utf-8", "surrogateescape")
            points.setdefault((crc32(owner), destination.name, i), destination)
    return points[min((one for one in points if one[0] >= point), default=min(points))] if points else None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "drop"]), st.integers(0, len(DESTINATIONS) - 1),
            st.integers(1, 40),
        ),
        max_size=30,
    ),
    st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=20),
)
@settings(max_examples=100, deadline=None)
def test_ring_of_parts_is_the_ring_of_all_points(steps, sought):
    ring, bound = Ring(), []

    for verb, which, weight in steps:
        destination = DESTINATIONS[which]
        if verb == "add":
            ring.add(destination, weight)
            bound.append((destination, weight))
        elif verb == "drop":
            ring.drop(destination)
            bound = [one for one in bound if one[0] is not destination]
        elif (destination, weight) in bound:
            ring.remove(destination, weight)
            bound.remove((destination, weight))

    for point in (
        *sought, *(crc32(f"{name}.{i}".encode()) for name in ("a", "59c33016") for i in (0, 16, 39)), 0,
        2**32 - 1,
    ):
        assert ring.destination_at(point) is owner_by_looking_at_all(bound, point)
    for destination in DESTINATIONS:
        ring.drop(destination)
    assert ring.destination_at(0) is None and not ring._parts and not ring._filled and not ring._bound


def test_points_that_meet_belong_to_the_first_name():
    one, other = DESTINATIONS[-2:]
    point = crc32(b"59c33016.16")
    assert point == crc32(b"48042b1d.10")

    for order in ((one, other), (other, one)):
        ring = Ring()
        for destination in order:
            ring.add(destination, 20)
        assert ring.destination_at(point) is other
        ring.drop(other)
        assert ring.destination_at(point) is one


def test_points_of_a_large_ring_lie_in_small_parts():
    """A binding looks at the parts where its own points lie: with all points in one row a binding of weight
    10 000 to 60 others took 400 ms.
    """
    ring = Ring()

    for number in range(20):
        ring.add(Destination(f"queue-{number}"), MAX_WEIGHT)

    sizes = [len(points) for points, _, _ in ring._parts.values()]
    assert sum(sizes) == 20 * MAX_WEIGHT and max(sizes) < 150
