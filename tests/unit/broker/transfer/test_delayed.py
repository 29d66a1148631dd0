"""Delay queue: in order of time, on disk, and nothing lost by a store that fails."""
import struct
import tracemalloc
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gomq_py.broker.exchanges.delayed import due_ms_of, gone_on
from gomq_py.broker.routing.route import Destination, ExchangeState, RememberedRoutes, Route
from gomq_py.broker.transfer import engine
from gomq_py.broker.transfer.delayed import DelayQueue
from gomq_py.content.fields import encode_shortstr
from gomq_py.hub.scheduler import SliceClock
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.stores.recovery import open_store
from tests.support.clocks import StepClock
from tests.support.queues import Bench, message


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def park(bench):
    """A delay queue whose messages say in their body after how many milliseconds they are due;
    ``released`` are (time, body).
    """
    return make(bench, bench.store("park"))


class Park(DelayQueue):
    """A delay queue of which a test keeps what it released."""


def make(bench, store):
    park = Park("park", True, store, bench.scheduler, Durability(bench.committer), bench.timers)
    park.due_ms_of = lambda parked: parked.describe()["timestamp_ms"] + int(parked.get_body())
    park.released = []
    park.release = lambda parked, _pending: park.released.append((bench.now_ms, parked.get_body()))
    return park


def test_messages_go_on_in_their_time(bench, park):
    start = bench.now_ms
    bench.publish(park, b"30", b"10", b"20")

    bench.advance(50)

    assert park.released == [(start + 10, b"10"), (start + 20, b"20"), (start + 30, b"30")]
    assert (park.count, park.store.unacked_count) == (0, 0)


def test_body_of_a_message_that_waits_is_kept_on_disk_only(bench, park):
    body = b"9" + b" " * 1_000_000
    bench.publish(park, b"5")
    tracemalloc.start()
    try:
        bench.publish(park, body)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert (park.count, kept < len(body) / 2) == (2, True)


def test_equal_times_keep_the_order(bench, park):
    bench.publish(park, b"5", b"05", b"005")

    bench.advance(10)

    assert [body for _, body in park.released] == [b"5", b"05", b"005"]


def test_earlier_one_that_comes_later_goes_first(bench, park):
    bench.publish(park, b"100")
    bench.advance(10)
    bench.publish(park, b"5")

    bench.advance(10)

    assert [body for _, body in park.released] == [b"5"]


def test_many_that_are_due_together_go_in_slices(bench, monkeypatch):
    monkeypatch.setattr(engine, "SLICE", 10)
    monkeypatch.setattr(engine, "SLICE_S", 60)  # by number alone, on a busy machine too
    park = make(bench, bench.store("park"))
    bench.publish(park, *[b"5"] * 35)
    bench.now_ms += 5
    bench.timers.fire()

    bench.loop.poll()
    assert len(park.released) == 10
    bench.settle()

    assert len(park.released) == 35


def test_slice_ends_with_its_time_and_the_others_go_on_in_their_order(bench, monkeypatch):
    """Every look at the clock finds that a millisecond has passed, and a slice has five."""
    monkeypatch.setattr(engine, "CLOCK", partial(SliceClock, clock=StepClock()))
    park = make(bench, bench.store("park"))
    bodies = [b"%05d" % (number % 3) for number in range(20)]
    bench.publish(park, *bodies)
    bench.now_ms += 5
    bench.timers.fire()

    bench.loop.poll()
    assert 1 <= len(park.released) <= 6 and park.count + len(park.released) == 20
    bench.settle()

    assert [body for _, body in park.released] == sorted(bodies)


def test_what_waits_is_found_again(bench, park):
    bench.publish(park, b"20", b"10")
    park.store.write_out()
    again = make(bench, reopened(bench, park))

    while again.rebuild_some():
        pass
    bench.advance(30)

    assert [body for _, body in again.released] == [b"10", b"20"]


def reopened(bench, park):
    """The store as a boot after a kill finds it."""
    store = park.store
    park.close()
    return open_store(store.folder, bench.files, bench.pool, bench.committer, store.incarnation)[0]


def test_empty_queue_has_no_timer(bench, park):
    bench.publish(park, b"5")
    bench.advance(10)

    assert bench.timers.pending == []


def test_closed_queue_takes_and_releases_nothing(bench, park):
    bench.publish(park, b"5")

    park.close()
    bench.advance(10)

    assert park.released == []
    assert park.publish(message(b"5", timestamp_ms=bench.now_ms)) == 0
    assert bench.timers.pending == []


def test_message_that_cannot_be_released_is_set_aside_and_the_others_go_on(bench, park, caplog):
    release, park.release = park.release, lambda parked, pending: 1 // int(
        parked.get_body() != b"5"
    ) and release(parked, pending)
    bench.publish(park, b"3", b"5", b"05", b"7")

    bench.advance(20)

    assert [body for _, body in park.released] == [b"3", b"05", b"7"]
    assert park.aside.count == 1 and park.store.unacked_count == 1
    assert (
        "park: the message in segment" in caplog.text
        and "is set aside until the next restart: going on after the delay" in caplog.text
    )


def test_message_whose_time_cannot_be_told_is_refused(bench, park):
    assert bench.publish(park, b"soon", b"5") == [0, 1]
    assert not park.unable

    bench.advance(10)

    assert [body for _, body in park.released] == [b"5"]


# what is read in place, and what has to be looked at

class Kept(Destination):
    """Keeps what is published to it: (name, what the message is, its octets)."""

    def __init__(self, name, kept, refuses=False):
        super().__init__(name, True)
        self.kept = kept
        self.refuses = refuses

    def publish(self, message):
        if self.refuses:
            self.unable = True
            return 0
        about = message.describe()
        self.kept.append((
            self.name,
            {key: about[key] for key in ("timestamp_ms", "expires_at_ms", "kind", "priority", "persistent")},
            message.get_exchange(), message.get_routing_key(), message.get_properties(), message.get_body()))
        return 1


class Routed:
    """A delay queue whose messages go to ``targets`` by remembered routes, and what took the general way."""

    def __init__(self, bench, name="routed"):
        self.bench = bench
        self.kept, self.general = [], []
        self.state = ExchangeState()
        self.targets = [Kept("one", self.kept), Kept("two", self.kept)]
        self.asked = []
        self.park = Park(name, True, bench.store(name), bench.scheduler, Durability(bench.committer),
                         bench.timers)
        self.park.due_ms_of = due_ms_of
        self.park.release = self.release
        self.park.routes = RememberedRoutes(self.route)

    def route(self, key):
        self.asked.append(key)
        return Route(self.targets, self.state)

    def release(self, message, pending):
        released = gone_on(message, self.bench.now_ms)[0]
        self.general.append(released.get_body())
        return [
            target for target in (self.targets if pending is None else pending)
            if not target.publish(released) and target.unable]


@pytest.fixture
def routed(bench):
    return Routed(bench)


def with_table(*entries, flags=0x2000, before=b"", after=b""):
    """Properties with these entries, (key, octets of a value), in the table."""
    table = b"".join(encode_shortstr(key) + value for key, value in entries)
    return struct.pack(">H", flags) + before + struct.pack(">I", len(table)) + table + after


VALUES = st.one_of(
    *(st.sampled_from(edges).map(partial(struct.pack, f">c{code}", kind.encode())) for kind, code, edges in (
        ("b", "b", (-128, -1, 0, 1, 127)), ("B", "B", (0, 1, 255)),
        ("s", "h", (-2 ** 15, -1, 0, 5, 2 ** 15 - 1)), ("u", "H", (0, 5, 2 ** 16 - 1)),
        ("I", "i", (-2 ** 31, -1, 0, 5, 1000, 2 ** 31 - 1)),
        ("i", "I", (0, 5, 2 ** 31, 2 ** 31 + 1, 2 ** 32 - 1)),
        ("l", "q", (-2 ** 63, -2 ** 63 + 1, -2 ** 31 - 1, -1, 0, 5, 2 ** 31, 2 ** 31 + 1, 2 ** 63 - 1)),
        ("L", "q", (-2 ** 63, -2 ** 40, 0, 5, 2 ** 40, 2 ** 63 - 1)),
        ("T", "Q", (0, 1, 1_700_000_001, 253402300799, 253402300800, 2 ** 64 - 1)),
        ("t", "B", (0, 1)), ("d", "d", (-1.5, 0.0, 5.5)),
    )),
    st.sampled_from((b"V", b"S\0\0\0\x015", b"S\0\0\0\x02-5", b"A\0\0\0\0", b"F\0\0\0\0", b"x\0\0\0\0")))
ENTRIES = st.lists(
    st.tuples(st.sampled_from(("x-delay", "x-deliver-at", "x-delaz", "a", "CC", "x-dela", "")), VALUES),
    max_size=4)


@given(
    entries=ENTRIES, before=st.sampled_from((b"", b"\x05text/")), after=st.sampled_from((b"", b"\x02id")),
    expiration=st.sampled_from((None, b"\x0260")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_in_place_waits_and_goes_on_as_by_the_general_way(
        tmp_path_factory, entries, before, after, expiration):
    bench = Bench(tmp_path_factory.mktemp("park"))
    routed = Routed(bench)
    properties = with_table(
        *entries, before=before, after=(expiration or b"") + after,
        flags=0x2000 | (0x8000 if before else 0) | (0x0080 if after else 0) | (0x0100 if expiration else 0))
    waiting = message(b"body", b"k", b"x", properties, bench.now_ms, priority=3, persistent=True)
    due_ms = due_ms_of(waiting)

    bench.scheduler.begin(bench.now_ms)
    routed.park.publish(waiting)
    bench.scheduler.finish()

    assert waiting.describe()["expires_at_ms"] == 0  # it may go to others besides
    assert routed.park.due.first(1)[0][0] == due_ms
    bench.now_ms = max(due_ms, bench.now_ms)
    bench.timers.fire()
    bench.settle()
    went, routed.kept[:] = list(routed.kept), []
    routed.release(message(b"body", b"k", b"x", properties, bench.now_ms, priority=3, persistent=True), None)
    assert went == routed.kept and [name for name, *_ in went] == ["one", "two"]


@pytest.mark.parametrize("value, general", [
    (b"I\0\0\0\x05", []), (b"b\x05", []), (b"l" + bytes(7) + b"\x05", []), (b"S\0\0\0\x015", [b"body"])])
def test_plain_delay_takes_no_look_at_each_message(bench, routed, value, general):
    properties = with_table(("a", b"t\1"), ("x-delay", value))
    bench.publish(routed.park, b"body", properties=properties)
    bench.advance(10)

    assert (len(routed.kept), routed.general, routed.asked) == (2, general, [b"\0\1q"])


LARGEST_COPY = 64 * 1024
IN_PLACE = with_table(("x-delay", b"I\0\0\0\x05"))
LOOKED_AT = with_table(("x-delay", b"S\0\0\0\x015"))


def test_order_of_equal_times_holds_whichever_way_each_goes(bench, routed):
    """In place, by a text, by a body that no buffer of a slice holds: equal times go as they came."""
    bodies = []
    bench.scheduler.begin(bench.now_ms)
    for number in range(60):
        body = b"%d" % number + (b"." * LARGEST_COPY if number % 7 == 3 else b"")
        bodies.append(body)
        routed.park.publish(message(
            body, properties=LOOKED_AT if number % 3 == 1 else IN_PLACE, timestamp_ms=bench.now_ms))
    bench.scheduler.finish()

    bench.advance(10)

    assert [entry[-1] for entry in routed.kept if entry[0] == "one"] == bodies
    assert 0 < len(routed.general) < 60


def test_messages_of_one_slice_are_copied_whatever_their_sizes(bench, routed):
    bodies = [b"x" * size for size in (0, 10_000, 1, 5000, LARGEST_COPY - 64, LARGEST_COPY, 3)]

    bench.publish(routed.park, *bodies, properties=IN_PLACE)
    bench.advance(10)

    assert [entry[-1] for entry in routed.kept if entry[0] == "two"] == bodies
    assert routed.general == [b"x" * LARGEST_COPY]


def test_destinations_that_have_no_room_get_it_later_and_the_others_once(bench, routed):
    routed.targets[1].refuses = True
    bench.publish(routed.park, b"1", b"2", properties=IN_PLACE)
    bench.advance(10)

    assert [(name, body) for name, *_, body in routed.kept] == [("one", b"1")]
    routed.targets[1].refuses = False
    bench.advance(engine.TRY_AGAIN_MS)

    assert [(name, body) for name, *_, body in routed.kept] == [
        ("one", b"1"), ("two", b"1"), ("one", b"2"), ("two", b"2")]
    assert routed.park.store.unacked_count == 0


def test_routes_are_asked_for_again_after_a_change_and_let_go_of_when_nothing_waits(bench, routed):
    bench.publish(routed.park, b"1", b"2", properties=IN_PLACE)
    bench.publish(routed.park, b"later", properties=with_table(("x-delay", b"I\0\0\0\x64")))
    bench.advance(10)
    assert len(routed.asked) == 1
    routed.state.revision += 1
    bench.advance(100)
    assert len(routed.asked) == 2

    bench.publish(routed.park, b"3", properties=IN_PLACE)
    bench.advance(10)

    assert len(routed.asked) == 3 and routed.state.publish_out == 8


def test_destination_that_raises_sets_its_message_aside_and_the_others_go_on(bench, routed):
    keep = routed.targets[0]

    class Ill(Kept):
        def publish(self, message):
            return 1 // (message.get_body() != b"ill") and keep.publish(message)

    routed.targets[:] = [Ill("ill", routed.kept)]
    bench.publish(routed.park, b"1", b"ill", b"2", properties=IN_PLACE)
    bench.advance(10)

    assert [entry[-1] for entry in routed.kept] == [b"1", b"2"]
    assert routed.park.aside.count == 1 and routed.park.store.unacked_count == 1
