"""The fast lane: what it takes, what it hands to the slow lane,
and that it does either whatever way the octets arrive.
"""
import struct
from datetime import datetime, timezone

import pytest
from hypothesis import given, strategies as st

from gomq_py.amqp.wire.errors import FrameError
from gomq_py.broker.queues.queue import Queue
from gomq_py.content.fields import Int8, Seconds, encode_table
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import Scheduler
from tests.support.lanes import (
    LaneBench, NotingQueue, ack, content_header, frame, publish, publish_method, short,
)

PERSISTENT = (
    Properties(delivery_mode=2, priority=7, headers={"a": 1, "b": "two"}, content_type="text/plain").encode()
)

# Of a read that may outrun consumers.
MANY = 16


def stored(
    body=b"hello", routing_key=b"q", properties=b"\0\0", queue="q", exchange=b"", persistent=False, priority=0
):
    return ("publish", queue, exchange, routing_key, properties, body, persistent, priority)


def payloads(octets):
    """The frames of ``octets`` as the slow lane gets them."""
    found = []
    while octets:
        kind, channel, size = struct.unpack_from(">BHI", octets)
        found.append(("slow", kind, channel, octets[7:7 + size]))
        octets = octets[8 + size:]
    return found


class Told(Queue):
    """Notes which locations it is told to settle."""

    def __init__(self, told):
        super().__init__("told", "/", None, Scheduler())
        self.told = told

    def ack(self, location):
        self.told.append(location)


@pytest.fixture
def bench():
    return LaneBench()


@pytest.mark.parametrize("body", [b"", b"x", b"hello", b"y" * 4000], ids=len)
@pytest.mark.parametrize(
    "properties, persistent, priority", [(b"\0\0", False, 0), (PERSISTENT, True, 7)], ids=["bare", "full"]
)
def test_a_publish_is_stored_with_its_parts_as_sent(bench, body, properties, persistent, priority):
    assert bench.read(publish(body, properties=properties)) == [
        stored(body, properties=properties, persistent=persistent, priority=priority)
    ]


STREAM = (
    publish(b"one") + publish(b"", properties=PERSISTENT) + frame(8, 0, b"")
    + publish(b"three" * 300, routing_key=b"nowhere") + ack(9) + publish(b"x" * 2000)
    + frame(1, 2, b"\x00\x14\x00\x28") + publish(b"other channel", channel=2)
)
STREAM_LOG = [
    stored(b"one"), stored(b"", properties=PERSISTENT, persistent=True, priority=7), ("slow", 8, 0, b""),
    *payloads(publish(b"three" * 300, routing_key=b"nowhere")), *payloads(ack(9)), stored(b"x" * 2000),
    ("slow", 1, 2, b"\x00\x14\x00\x28"),
    stored(b"other channel"),
]


@pytest.mark.parametrize("size", [None, 1, 2, 3, 7, 8, 20, 100, 999])
def test_the_walk_is_the_same_whatever_the_reads(bench, size):
    assert bench.feed(STREAM, size) == STREAM_LOG
    assert bench.tail == b""


def test_what_is_not_complete_stays_for_the_next_read(bench):
    """Cut anywhere: nothing is handed on before it is whole, and nothing is lost."""
    for cut in range(1, len(STREAM)):
        fresh = LaneBench()
        fresh.read(STREAM[:cut])
        assert len(fresh.log) <= len(STREAM_LOG)
        fresh.read(STREAM[cut:])
        assert fresh.log == STREAM_LOG


ORDINARY = publish(b"hello")
METHOD = publish_method()
ODD = {
    "mandatory and no queue": publish(routing_key=b"none", bits=1),
    "immediate": publish(bits=2),
    "no route": publish(routing_key=b"nowhere"),
    "no exchange": publish(exchange=b"missing"),
    "expiration": publish(properties=Properties(expiration="100").encode()),
    "user id": publish(properties=Properties(user_id="guest").encode()),
    "CC": publish(properties=Properties(headers={"CC": ["a"]}).encode()),
    "BCC": publish(properties=Properties(headers={"BCC": ["a"]}).encode()),
    "direct reply-to": publish(properties=Properties(reply_to="amq.rabbitmq.reply-to").encode()),
    "malformed properties": publish(properties=b"\x80\x00\x05abc"),
    "properties cut short": publish(properties=b"\x00"),
    "wrong class": METHOD + content_header(5, class_id=50) + frame(3, 1, b"hello"),
    "weight": METHOD + content_header(5, weight=1) + frame(3, 1, b"hello"),
    "short header": METHOD + frame(2, 1, b"\x00\x3c\x00\x00") + frame(3, 1, b"hello"),
    "two body frames": METHOD + content_header(5) + frame(3, 1, b"hel") + frame(3, 1, b"lo"),
    "body longer than announced": METHOD + content_header(4) + frame(3, 1, b"hello"),
    "empty body frame": METHOD + content_header(5) + frame(3, 1, b"") + frame(3, 1, b"hello"),
    "huge body announced": METHOD + content_header(2 ** 64 - 1) + frame(3, 1, b"hello"),
    "another channel's header": METHOD + content_header(5, channel=2) + frame(3, 2, b"hello"),
    "another channel's body": METHOD + content_header(5) + frame(3, 2, b"hello"),
    "heartbeat between": METHOD + frame(8, 0, b"") + content_header(5) + frame(3, 1, b"hello"),
    "method instead of header": METHOD + METHOD + content_header(5),
    "trailing octets in the method": (
        frame(1, 1, METHOD[7:-1] + b"x") + content_header(5) + frame(3, 1, b"hello")
    ),
    "exchange runs over the frame": (
        frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\xffabc\x00") + content_header(5) + frame(3, 1, b"hello")
    ),
    "routing key runs over the frame": (
        frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\xffab\x00") + content_header(5) + frame(3, 1, b"hello")
    ),
    "no room for the bits": (
        frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x01q") + content_header(5) + frame(3, 1, b"hello")
    ),
    "method of class and method only": (
        frame(1, 1, b"\x00\x3c\x00\x28") + content_header(5) + frame(3, 1, b"hello")
    ),
    "method of one octet": frame(1, 1, b"\x00"),
    "empty method": frame(1, 1, b""),
    "channel not open": publish(channel=3),
    "unknown frame type": frame(7, 1, b"what"),
    "ack of an unknown tag": ack(1),
    "ack with a trailing octet": frame(1, 1, struct.pack(">HHQBB", 60, 80, 1, 0, 0)),
    "ack cut short": frame(1, 1, struct.pack(">HHQ", 60, 80, 1)),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("size", [None, 1])
def test_what_is_odd_goes_to_the_slow_lane_frame_by_frame_and_the_rest_does_not(bench, odd, size):
    bench.routes[b"", b"none"] = []

    bench.feed(ORDINARY + odd + ORDINARY, size)

    # A body frame that stands alone may begin the next publish's tail;
    # the walk goes on behind it all the same.
    assert bench.log == [stored(), *payloads(odd), stored()]


def test_a_mandatory_message_that_a_queue_gets_is_as_any_other(bench):
    assert bench.read(publish(b"hello", bits=1)) == [stored()]


def test_a_channel_on_the_slow_lane_stays_there(bench):
    bench.channels[1].slow = True

    assert bench.read(ORDINARY + publish(channel=2)) == [*payloads(ORDINARY), stored()]


def test_a_body_over_the_message_limit_is_for_the_slow_lane_to_refuse():
    bench = LaneBench(max_message=100)

    assert bench.read(publish(b"x" * 100) + publish(b"x" * 101)) == [
        stored(b"x" * 100), *payloads(publish(b"x" * 101))
    ]


@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_a_payload_of_frame_max_is_taken_and_a_larger_one_ends_the_connection(frame_max):
    bench = LaneBench(frame_max)
    largest = b"x" * frame_max
    assert bench.feed(publish(largest)) == [stored(largest)]

    with pytest.raises(FrameError):
        bench.feed(publish(largest + b"x"))


def test_a_wrong_frame_end_ends_the_connection_after_what_stood_before(bench):
    with pytest.raises(FrameError):
        bench.read(ORDINARY + frame(8, 0, b"", end=b"\x00"))

    assert bench.log == [stored()]


@pytest.mark.parametrize(
    "end_of", [publish_method(), publish_method() + content_header(5), ORDINARY],
    ids=["method", "header", "body"],
)
def test_a_wrong_frame_end_within_a_publish_ends_the_connection(bench, end_of):
    broken = end_of[:-1] + b"\xcd" + ORDINARY[len(end_of):]

    with pytest.raises(FrameError):
        bench.read(broken + ORDINARY)

    assert [entry for entry in bench.log if entry[0] == "publish"] == []


def test_the_frame_size_that_was_negotiated_counts(bench):
    bench.lane.set_frame_max(200)

    with pytest.raises(FrameError):
        bench.read(publish(b"x" * 201))


def test_the_walk_stops_where_the_handler_says_and_keeps_the_rest(bench):
    bench.stops_at = (8, 0, b"")

    bench.read(ORDINARY + frame(8, 0, b"") + ORDINARY)

    assert bench.log == [stored(), ("slow", 8, 0, b"")] and bench.tail == ORDINARY


def test_a_route_is_asked_for_once(bench):
    bench.read(ORDINARY * 3)

    assert bench.route_calls == 1


@pytest.mark.parametrize("what", ["exchange", "permission"])
def test_a_route_is_asked_for_again_when_what_it_rests_on_changed(bench, what):
    bench.read(ORDINARY)
    bench.routes[b"", b"q"] = [NotingQueue("new", bench.log)]

    getattr(bench, what).revision += 1
    bench.read(ORDINARY)

    assert bench.log == [stored(), stored(queue="new")]


def test_mixed_keys_find_their_own_queues(bench):
    for number in range(20):
        bench.routes[b"x", b"key.%d" % number] = [NotingQueue(f"queue {number}", bench.log)]
    order = [number * 7 % 20 for number in range(100)]

    bench.read(b"".join(publish(exchange=b"x", routing_key=b"key.%d" % number) for number in order))

    assert [entry[1] for entry in bench.log] == [f"queue {number}" for number in order]
    assert bench.route_calls == 20


def test_exchange_and_key_are_not_confused(bench):
    """The same octets split elsewhere are another route."""
    bench.routes[b"ab", b"c"] = [NotingQueue("ab/c", bench.log)]
    bench.routes[b"a", b"bc"] = [NotingQueue("a/bc", bench.log)]

    bench.read(publish(exchange=b"ab", routing_key=b"c") + publish(exchange=b"a", routing_key=b"bc"))

    assert [entry[1] for entry in bench.log] == ["ab/c", "a/bc"]


def test_more_keys_than_the_cache_holds_are_still_routed(bench):
    for number in range(5000):
        bench.routes[b"", b"%d" % number] = [NotingQueue("q", bench.log)]

    for number in range(5000):
        bench.read(publish(b"", routing_key=b"%d" % number))

    assert len(bench.log) == 5000


def with_header(value, key="been", **others):
    return Properties(headers={"before": 1, key: value, **others}).encode()


def entry_of(value, key=b"been"):
    """What stands of it in the table."""
    return encode_table({key.decode(): value})[4:]


@pytest.fixture
def watching(bench):
    """The route of the key "q" depends on the header "been"."""
    bench.watched = b"been"
    return bench


def test_routes_that_depend_on_a_header_are_remembered_by_it_too(watching):
    there, here = with_header(["there"]), with_header(["here"], after=2)
    watching.routes[b"", b"q", entry_of(["there"])] = [NotingQueue("t", watching.log)]
    watching.routes[b"", b"q", entry_of(["here"])] = [NotingQueue("h", watching.log)]
    kinds = [b"\0\0", there, there, here, with_header(["there"], key="beer"), there, b"\0\0"]

    watching.read(b"".join(publish(properties=properties) for properties in kinds))

    assert [(entry[0], entry[1]) for entry in watching.log] == [
        ("publish", queue) for queue in ("q", "t", "t", "h", "q", "t", "q")]
    assert watching.route_calls == 3


def test_route_by_a_header_is_asked_for_again_when_what_it_rests_on_changed(watching):
    there = publish(properties=with_header(["there"]))
    watching.routes[b"", b"q", entry_of(["there"])] = [NotingQueue("old", watching.log)]
    watching.read(there)
    watching.routes[b"", b"q", entry_of(["there"])] = [NotingQueue("new", watching.log)]

    watching.exchange.revision += 1
    watching.read(there)

    assert [entry[1] for entry in watching.log] == ["old", "new"]


def test_first_of_two_equal_headers_counts_for_a_route(watching):
    table = entry_of(["there"]) + entry_of(["here"])
    watching.routes[b"", b"q", entry_of(["there"])] = [NotingQueue("t", watching.log)]

    watching.read(publish(properties=b"\x20\0" + struct.pack(">I", len(table)) + table))

    assert [entry[1] for entry in watching.log] == ["t"]


@pytest.mark.parametrize("value, calls", [("x" * 2000, 1), (["unknown"], 2)], ids=["long", "no route"])
def test_what_no_route_by_a_header_is_remembered_for_goes_to_the_slow_lane(watching, value, calls):
    message = publish(properties=with_header(value))

    assert watching.read(message) == payloads(message)
    assert watching.route_calls == calls


def test_routes_by_a_header_are_bounded(watching):
    order = [number % 1000 for number in range(1010)]
    for number in range(1000):
        watching.routes[b"", b"q", entry_of([number])] = [NotingQueue(f"{number}", watching.log)]

    watching.feed(b"".join(publish(properties=with_header([number])) for number in order))

    assert [entry[1] for entry in watching.log] == [f"{number}" for number in order]
    assert watching.route_calls == 1 + 1010  # the first ten are not remembered any more


def test_each_queue_of_a_route_gets_the_message_and_the_exchange_counts(bench):
    bench.routes[b"", b"both"] = [NotingQueue("a", bench.log), NotingQueue("b", bench.log)]
    bench.routes[b"", b"none"] = []

    bench.read(publish(routing_key=b"both") + publish(routing_key=b"none"))

    assert [entry[1] for entry in bench.log] == ["a", "b"]
    assert (bench.exchange.publish_in, bench.exchange.publish_out, bench.exchange.unroutable) == (2, 2, 1)


def test_confirm_mode_counts_publishes_and_they_are_confirmed_once(bench):
    bench.channels[1].confirming = True

    bench.read(ORDINARY * 3 + publish(channel=2))
    bench.lane.send_confirms()

    assert bench.confirmed == [(3, [], ())]


def test_only_persistent_messages_to_durable_queues_wait_for_the_disk(bench):
    bench.channels[1].confirming = True
    bench.routes[b"", b"transient"] = [NotingQueue("t", bench.log, durable=False)]

    bench.read(publish(properties=PERSISTENT, routing_key=b"transient"))
    bench.read(publish(properties=PERSISTENT))

    assert bench.confirmed == [(1, [], ()), (2, [], (tuple(bench.routes[b"", b"q"]),))]


def test_what_a_queue_refuses_is_to_be_nacked(bench):
    bench.channels[1].confirming = True
    bench.routes[b"", b"full"] = [NotingQueue("full", bench.log, refuses=True)]

    bench.read(ORDINARY + publish(routing_key=b"full", properties=PERSISTENT) + ORDINARY)

    assert bench.confirmed == [(3, [2], ())]


def test_acks_settle_in_the_lane(bench):
    told = []
    unacked = bench.channels[1].unacked
    holder = unacked.make_holder(Told(told), object())
    for location in (11, 12, 13, 14):
        unacked.add(holder, location, 1, 1)

    bench.read(ack(2) + ack(4, True))

    assert told == [12, 11, 13, 14] and bench.log == []


def frames_taken(log):
    """The octets of the frames that led to this log; a stored publish stands for its own."""
    taken = b""
    for entry in log:
        if entry[0] == "slow":
            taken += frame(entry[1], entry[2], entry[3])
        else:
            _, _, exchange, routing_key, properties, body, _, _ = entry
            taken += publish(body, exchange, routing_key, properties)
    return taken


def without_reserved(octets):
    """The same frames with the reserved short of each basic.publish at zero:
    nobody looks at it, and nobody keeps it.
    """
    cleaned = bytearray(octets)
    at = 0
    while len(octets) - at >= 13:
        size = int.from_bytes(octets[at + 3:at + 7], "big")
        if octets[at] == 1 and size >= 6 and octets[at + 7:at + 11] == b"\x00\x3c\x00\x28":
            cleaned[at + 11:at + 13] = b"\0\0"
        at += 8 + size
    return bytes(cleaned)


@given(
    pieces=st.lists(
        st.sampled_from([ORDINARY, publish(b"", properties=PERSISTENT), frame(8, 0, b""), *ODD.values()]),
        min_size=1, max_size=8,
    ),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    size=st.sampled_from([1, 3, 10, 64, 500, 5000]),
)
def test_no_octet_is_lost_or_invented_whatever_arrives(pieces, changes, size):
    """Random octets in valid streams: what was stored and what the slow lane got is exactly what was read, in
    order, and nothing else happens.
    """
    octets = bytearray(b"".join(pieces))
    for at, value in changes:
        octets[at % len(octets)] = value
    bench = LaneBench()

    try:
        bench.feed(bytes(octets), size)
    except FrameError:
        assert without_reserved(octets).startswith(without_reserved(frames_taken(bench.log)))
    else:
        assert without_reserved(frames_taken(bench.log) + bench.tail) == without_reserved(octets)


@given(st.binary(max_size=300), st.integers(1, 300))
def test_noise_neither_crashes_nor_stores(noise, size):
    bench = LaneBench()

    try:
        bench.feed(noise, size)
    except FrameError:
        pass

    assert [entry for entry in bench.log if entry[0] == "publish"] == []


def test_short_strings_of_every_length_are_kept(bench):
    for length in (0, 1, 127, 128, 255):
        name, key = b"e" * length, b"k" * (255 - length)
        bench.routes[name, key] = [NotingQueue("q", bench.log)]

        bench.read(publish(exchange=name, routing_key=key))

        assert bench.log.pop() == stored(exchange=name, routing_key=key)
    assert short(b"") == b"\0"


def test_a_walk_over_messages_to_many_queues_ends_with_its_time_and_goes_on_later(bench):
    """Each of these goes to 600 queues: after the second it is asked whether there is time."""
    bench.routes[b"", b"many"] = [NotingQueue(str(number), bench.log) for number in range(600)]
    asked = []
    bench.has_time = lambda: asked.append(len(bench.log)) or len(asked) > 1

    bench.read(b"".join(publish(b"%d" % number, routing_key=b"many") for number in range(5)))

    assert asked == [1200] and [entry[5] for entry in bench.log] == [b"0"] * 600 + [b"1"] * 600
    bench.read(b"")
    assert asked == [1200, 2400]
    assert [entry[5] for entry in bench.log] == [b"%d" % number for number in range(5) for _ in range(600)]
    assert bench.tail == b""


def test_a_walk_over_messages_to_one_queue_is_not_timed(bench):
    bench.has_time = lambda: pytest.fail("asked for its time")

    log = bench.read(publish(b"x") * 300)

    assert len(log) == 300


# consumers that are behind

def test_the_handler_hears_once_for_a_read_that_all_queues_of_a_publish_are_outrun(bench):
    queues = bench.routes[b"", b"two"] = [NotingQueue(name, bench.log) for name in ("first", "second")]
    bench.read(publish(routing_key=b"two"))
    queues[0].outrun = True
    bench.read(publish(routing_key=b"two") * MANY)
    assert bench.outrun == []

    queues[1].outrun = True
    bench.read(publish(routing_key=b"two") * MANY)

    assert bench.outrun == [["first", "second"]]


def test_a_read_that_publishes_nothing_is_not_held_against_a_queue_that_is_outrun(bench):
    bench.read(publish())
    bench.routes[b"", b"q"][0].outrun = True

    bench.read(ack(1) + frame(8, 0, b"") + publish(bits=2) * MANY)

    assert bench.outrun == []


@pytest.fixture
def behind(bench):
    """Consumers of "q" are."""
    bench.read(publish())
    bench.routes[b"", b"q"][0].outrun = True
    return bench


def few(bench, step_ms):
    """Reads of a quarter of MANY messages each, so many milliseconds apart."""
    for _ in range(8):
        bench.now_ms += step_ms
        bench.read(publish() * (MANY // 4))


def test_reads_of_few_messages_now_and_then_outrun_nobody(behind):
    few(behind, 1)
    assert behind.outrun == []

    behind.now_ms += 2
    behind.read(publish() * MANY)
    assert behind.outrun == [["q"]]


def test_reads_of_few_messages_in_quick_succession_do(behind):
    few(behind, 0)

    assert behind.outrun == [["q"]] * 5


def test_whoever_waits_for_confirms_outruns_nobody_with_few(behind):
    behind.channels[1].confirming = True

    few(behind, 0)
    assert behind.outrun == []

    behind.read(publish() * MANY)
    assert behind.outrun == [["q"]]


def test_a_message_counts_once_however_many_queues_it_went_to(behind):
    behind.routes[b"x", b""] = [NotingQueue(f"q{number}", behind.log) for number in range(MANY)]
    for _ in range(MANY // 2):
        assert behind.outrun == []
        behind.read(publish(exchange=b"x", routing_key=b"") + publish())

    assert behind.outrun == [["q"]]


def test_a_clock_that_is_set_back_does_not_add_up_what_was_published(behind):
    few(behind, -1)

    assert behind.outrun == []


def test_a_publish_that_goes_nowhere_outruns_nothing(bench):
    bench.routes[b"", b"nowhere"] = []

    bench.read(publish(routing_key=b"nowhere"))

    assert bench.outrun == []


@pytest.fixture
def delaying(bench):
    """Messages for the key "q" go to "park" where they are to wait."""
    bench.delayed = [NotingQueue("park", bench.log)]
    return bench


@pytest.mark.parametrize("headers, queue", [
    ({"x-delay": 5}, "park"), ({"x-delay": Int8(5)}, "park"), ({"x-delay": 2 ** 40}, "park"),
    ({"x-deliver-at": datetime(1990, 1, 1, tzinfo=timezone.utc)}, "park"), ({"x-deliver-at": 1}, "park"),
    ({"x-delay": -5}, "q"), ({"x-delay": 0}, "q"), ({"x-deliver-at": 0, "x-delay": 0}, "q"),
    ({"x-deliver-at": 0, "x-delay": 7}, "park"), ({"x-delaz": 5}, "q"), ({}, "q"),
    ({"x-delay": "5"}, None), ({"x-delay": 5.5}, None), ({"x-delay": True}, None), ({"x-delay": [5]}, None),
    ({"x-deliver-at": Seconds(2 ** 63)}, None), ({"x-deliver-at": "soon", "x-delay": 5}, None),
    ({"x-schedule": {"name": "n", "every": 1000}}, None), ({"x-delay": 5, "x-schedule": 5}, None),
])
def test_messages_that_are_to_wait_go_where_they_do_and_what_is_not_plain_to_the_slow_lane(
        delaying, headers, queue):
    message = publish(properties=Properties(headers={"a": "b", **headers, "z": None}).encode())

    found = [entry[1] if entry[0] == "publish" else entry for entry in delaying.read(message)]

    assert found == ([queue] if queue else payloads(message))


def test_messages_without_headers_do_not_wait(delaying):
    delaying.read(publish(properties=b"\0\0") + publish(properties=PERSISTENT))

    assert [entry[1] for entry in delaying.log] == ["q", "q"] and delaying.route_calls == 1


def test_first_of_two_equal_delays_counts(delaying):
    table = entry_of(5, b"x-delay") + entry_of(-5, b"x-delay")

    delaying.read(publish(properties=b"\x20\0" + struct.pack(">I", len(table)) + table))

    assert [entry[1] for entry in delaying.log] == ["park"]


def test_publisher_of_messages_that_wait_outruns_nobody(delaying):
    for queue in (*delaying.routes[b"", b"q"], *delaying.delayed):
        queue.outrun = True

    delaying.read(publish(properties=with_header(5, key="x-delay")) * 100)

    assert len(delaying.log) == 100 and delaying.outrun == []
