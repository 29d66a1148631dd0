"""Schedules of a delay queue: sent at each of their times, with one message of each on disk."""
from random import Random
from time import process_time

import gevent
import pytest

from gomq_py.broker.exchanges import schedule
from gomq_py.broker.exchanges.delayed import due_ms_of, gone_on
from gomq_py.broker.routing.route import LATER, Destination
from gomq_py.broker.transfer import schedules
from gomq_py.broker.transfer.delayed import DelayQueue
from gomq_py.content.properties import Properties
from gomq_py.storage.errors import StoreFull
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.message import Message
from gomq_py.storage.stores.recovery import open_store
from tests.support.queues import Bench, message
from tests.support.waiting import wait_until


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


class Disk:
    """Flushes when the test says so."""

    def __init__(self):
        self.waiting = []

    def when_safe(self, callback):
        self.waiting.append(callback)

    def flush(self, error=None):
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)


class Park(DelayQueue):
    """A delay queue; ``sent`` are (name, time, when, body). ``unable``: destinations that have no room."""


def make(bench, store, durability=None):
    park = Park(
        "park", True, store, bench.scheduler, durability or Durability(bench.committer), bench.timers)
    park.due_ms_of, park.sent, park.full = due_ms_of, [], []

    def release(parked, _pending):
        if park.full:
            return park.full
        sent, headers = gone_on(parked, bench.now_ms)
        park.sent.append((
            headers.get("x-schedule-name"), headers.get("x-schedule-time"), bench.now_ms, sent.get_body()))
        return ()

    park.release = release
    return park


@pytest.fixture
def park(bench):
    return make(bench, bench.store("park"))


def again(bench, park, durability=None):
    """What a boot finds after a kill."""
    bench.timers.pending.clear()
    store, _ = open_store(
        park.store.folder, bench.files, bench.pool, bench.committer, park.store.incarnation)
    found = make(bench, store, durability)
    while found.rebuild_some():
        pass
    return found


def put(bench, park, name, body=b"x", **fields):
    made = message(body, properties=Properties(
        headers={"x-schedule": {"name": name, **fields}}).encode(), timestamp_ms=bench.now_ms)
    made.set_kind(1, schedule.SCHEDULED)
    bench.scheduler.begin(bench.now_ms)
    answer = park.publish(made)
    bench.scheduler.finish()
    return answer


def leap(bench, ms):
    """Let this time pass at once."""
    bench.now_ms += ms
    bench.timers.fire()
    bench.settle()


def until(bench, predicate):
    """Do what is due until the predicate is true."""
    def is_done():
        bench.timers.fire()
        bench.settle()
        return predicate()

    wait_until(is_done, sleep=gevent.sleep)


def whens(park, start):
    return [(name, when - start) for name, _, when, _ in park.sent]


def test_message_is_sent_at_each_of_its_times(bench, park):
    start = bench.now_ms
    assert put(bench, park, "a", every=1000) == put(bench, park, "b", every=1500, end=start + 3000) == 1

    bench.advance(4200)

    assert sorted(whens(park, start), key=lambda sent: sent[::-1]) == [
        ("a", 1000), ("b", 1500), ("a", 2000), ("a", 3000), ("b", 3000), ("a", 4000)]
    assert [time - start for name, time, _, _ in park.sent if name == "a"] == [1000, 2000, 3000, 4000]
    assert (park.schedules.names(), park.store.unacked_count, park.store.ready_count) == (["a"], 1, 0)


def test_schedules_and_delays_do_not_disturb_each_other(bench, park):
    start = bench.now_ms
    put(bench, park, "a", every=1000)
    bench.publish(park, b"late", properties=Properties(headers={"x-delay": 1500}).encode())

    bench.advance(2100)

    assert whens(park, start) == [("a", 1000), (None, 1500), ("a", 2000)]
    assert (park.count, park.schedules.count) == (0, 1)


def test_publish_of_the_same_name_replaces(bench, park):
    start = bench.now_ms
    put(bench, park, "a", b"old", every=1000)
    bench.advance(1500)
    put(bench, park, "a", b"new", every=2000)

    bench.advance(4000)

    assert [(when - start, body) for _, _, when, body in park.sent] == [
        (1000, b"old"), (3500, b"new"), (5500, b"new")]
    assert (park.schedules.count, park.store.unacked_count) == (1, 1)


def test_publish_of_the_very_same_changes_nothing(bench, park):
    """A program that sets its schedule when it starts may start as often as it likes."""
    start = bench.now_ms
    put(bench, park, "a", every=3000, user="ann")
    for _ in range(4):
        bench.advance(1000)
        location = park.schedules._by_name["a"].location
        assert put(bench, park, "a", every=3000, user="ann") == 1
        assert park.schedules._by_name["a"].location == location

    assert whens(park, start) == [("a", 3000)]


@pytest.mark.parametrize("fields", [
    {"body": b"y"}, {"every": 4000}, {"every": 3000, "user": "bob"}, {"every": 3000, "missed": "once"}])
def test_publish_that_differs_replaces(bench, park, fields):
    put(bench, park, "a", every=3000, user="ann")
    location = park.schedules._by_name["a"].location

    put(bench, park, "a", **{"every": 3000, "user": "ann", **fields})

    assert park.schedules._by_name["a"].location != location


def test_publish_of_the_same_counts_anew_once_the_clock_was_set_back(bench, park):
    put(bench, park, "a", every=3000)
    bench.now_ms -= 1_000_000

    put(bench, park, "a", every=3000)

    assert park.schedules.show("a", Message()) == bench.now_ms + 3000


@pytest.mark.parametrize("missed", ["once", "all", "none"])
def test_clock_that_is_set_back_repeats_no_time_and_one_set_forward_follows_the_rule(bench, park, missed):
    start = bench.now_ms
    put(bench, park, "a", every=1000, missed=missed)
    bench.advance(2500)
    bench.timers.set_ms = -10_000
    bench.advance(9000)
    assert [(time - start) // 1000 for _, time, *_ in park.sent] == [1, 2]

    bench.timers.set_ms = 0
    leap(bench, 1600)
    until(bench, lambda: is_ahead(bench, park))

    assert [(time - start) // 1000 for _, time, *_ in park.sent] == [1, 2, *{
        "once": [3], "all": range(3, 14), "none": []}[missed]]


def test_publish_of_the_same_goes_on_with_one_that_is_set_aside(bench, park):
    put(bench, park, "a", every=1000)
    park.release, release = None, park.release
    bench.advance(1500)
    assert park.aside.count == 1
    park.release = release

    put(bench, park, "a", every=1000)
    bench.advance(1100)

    assert len(park.sent) == 1


@pytest.mark.parametrize("then", ["deleted", "replaced"])
def test_message_that_is_set_aside_goes_with_its_schedule(bench, park, then):
    put(bench, park, "a", b"old", every=1000)
    park.release, release = None, park.release
    bench.advance(1500)
    assert park.aside.count == 1
    park.release = release

    put(bench, park, "a", b"" if then == "deleted" else b"new", every=1000)
    bench.advance(1100)

    left = 0 if then == "deleted" else 1
    assert [body for *_, body in park.sent] == [b"new"] * left
    assert (park.schedules.count, park.store.unacked_count) == (left, left)
    assert (len(park.schedules._sent), len(park.schedules._gone)) == (0, 0)


def test_message_that_is_set_aside_is_not_tried_again_when_places_are_made_anew(bench, park):
    put(bench, park, "a", every=1000)
    park.release, release = None, park.release
    bench.advance(1500)
    park.release = release

    for number in range(2 * schedules.STALE):
        put(bench, park, "b", b"%d" % number, every=10_000_000)
    bench.advance(10)

    assert (park.sent, park.aside.count) == ([], 1)


def test_empty_message_deletes(bench, park):
    put(bench, park, "a", every=1000)
    put(bench, park, "b", every=1000)

    assert put(bench, park, "a", b"") == put(bench, park, "never", b"") == 1
    bench.advance(1500)

    assert [name for name, *_ in park.sent] == ["b"]
    assert (park.schedules.names(), park.store.unacked_count) == (["b"], 1)
    assert again(bench, park).schedules.names() == ["b"]


@pytest.mark.parametrize("missed, sent", [
    ("once", [1000]), ("all", [1000, 2000, 3000, 4000, 5000]), ("none", [])])
def test_times_that_passed_while_the_broker_was_away(bench, park, missed, sent):
    start = bench.now_ms
    put(bench, park, "a", every=1000, missed=missed)
    bench.now_ms += 5500

    found = again(bench, park)
    until(bench, lambda: [due_ms for due_ms, _ in found.schedules._due.first(1)] == [start + 6000])

    assert [time - start for _, time, *_ in found.sent] == sent
    bench.advance(1000)
    assert [time - start for _, time, *_ in found.sent[len(sent):]] == [6000]


def is_ahead(bench, park):
    """True if the schedule "a" has sent what is due, or is over."""
    due_ms = park.schedules.show("a", Message())
    return due_ms is None or due_ms > bench.now_ms


YEAR_MS = 365 * 24 * 3600 * 1000


@pytest.mark.parametrize("fields", [{"every": 1000}, {"cron": "* * * * * *"}])
@pytest.mark.parametrize("end", ["none", "passed"])
def test_all_times_of_a_year_are_the_last_ones(bench, park, monkeypatch, fields, end):
    monkeypatch.setattr(schedule, "MOST_MISSED", 20)
    start = bench.now_ms = bench.now_ms // 1000 * 1000
    last = start + YEAR_MS
    if end == "passed":
        last -= YEAR_MS // 2
        fields = {**fields, "end": last + 1}
    put(bench, park, "a", missed="all", **fields)
    bench.now_ms += YEAR_MS

    found = again(bench, park)
    until(bench, lambda: is_ahead(bench, found))

    times = [time for _, time, *_ in found.sent]
    assert times == [start + 1000, *range(last - (schedule.MOST_MISSED - 1) * 1000, last + 1, 1000)]
    assert (found.schedules.sent_count, found.schedules.missed_count) == (len(times), 1)
    assert found.schedules.count == (end == "none")


@pytest.mark.parametrize("fields", [{"every": 1000}, {"cron": "* * * * * *"}])
def test_schedule_that_is_late_again_and_again_sends_the_last_times_of_each(
        bench, park, monkeypatch, fields):
    monkeypatch.setattr(schedule, "MOST_MISSED", 3)
    start = bench.now_ms = bench.now_ms // 1000 * 1000
    put(bench, park, "a", missed="all", **fields)
    for _ in range(3):
        leap(bench, 5000)
        until(bench, lambda: is_ahead(bench, park))

    assert [(time - start) // 1000 for _, time, *_ in park.sent] == [1, 3, 4, 5, 6, 8, 9, 10, 11, 13, 14, 15]
    assert (park.schedules.sent_count, park.schedules.missed_count) == (12, 3)


def test_one_time_that_is_a_little_late_is_not_missed(bench, park):
    for late_ms, count in ((schedules.LATE_MS, 1), (schedules.LATE_MS + 1, 0)):
        put(bench, park, "a", every=3_600_000, missed="none")
        park.sent.clear()

        leap(bench, 3_600_000 + late_ms)

        assert len(park.sent) == count and park.schedules.count == 1


def test_kill_between_the_copies_and_the_next_time_repeats_one_and_loses_none(bench):
    disk = Disk()
    park = make(bench, bench.store("park"), disk)
    start = bench.now_ms
    put(bench, park, "a", every=1000)
    leap(bench, 1000)
    assert len(park.sent) == 1 and disk.waiting

    found = again(bench, park)
    bench.timers.fire()
    bench.advance(1000)

    assert [time - start for _, time, *_ in found.sent] == [1000, 2000]


@pytest.mark.parametrize("is_safe_before", [True, False])
def test_orderly_end_repeats_nothing(bench, is_safe_before):
    """The copies are safe just before the end, or during it."""
    disk = Disk()
    park = make(bench, bench.store("park"), disk)
    start = bench.now_ms
    put(bench, park, "a", every=1000)
    leap(bench, 1000)
    if is_safe_before:
        disk.flush()
    park.hold_back()
    disk.flush()

    found = again(bench, park)
    bench.advance(1000)

    assert [time - start for _, time, *_ in found.sent] == [2000]


def test_old_message_stays_until_the_next_is_safe_and_the_younger_counts(bench):
    """A power cut may keep an acknowledgement and lose a message that was written before it."""
    disk = Disk()
    park = make(bench, bench.store("park"), disk)
    start = bench.now_ms
    put(bench, park, "a", every=1000)
    leap(bench, 1000)
    disk.flush()
    leap(bench, 0)
    assert (park.store.unacked_count, park.schedules.count) == (2, 1)

    found = again(bench, park)
    bench.advance(1000)

    assert [time - start for _, time, *_ in found.sent] == [2000]
    assert (found.store.unacked_count, found.schedules.count) == (1, 1)


@pytest.mark.parametrize("then", ["deleted", "replaced"])
@pytest.mark.parametrize("error", [None, OSError("cannot be flushed")])
def test_schedule_that_changes_while_its_copies_are_flushed(bench, then, error):
    disk = Disk()
    park = make(bench, bench.store("park"), disk)
    put(bench, park, "a", b"old", every=1000)
    leap(bench, 1000)

    put(bench, park, "a", b"" if then == "deleted" else b"new", every=1000)
    for answer in (error, None, None, None):
        disk.flush(answer)
        bench.settle()
    leap(bench, 1000)
    for _ in range(3):
        disk.flush()
        bench.settle()

    assert [body for *_, body in park.sent] == ([b"old"] if then == "deleted" else [b"old", b"new"])
    left = 0 if then == "deleted" else 1
    assert (park.schedules.count, len(park.schedules._sent), len(park.schedules._gone)) == (left, 0, 0)
    assert again(bench, park).store.unacked_count == left


def test_copies_that_could_not_be_flushed_are_made_again(bench):
    disk = Disk()
    park = make(bench, bench.store("park"), disk)
    start = bench.now_ms
    put(bench, park, "a", every=1000)
    leap(bench, 1000)
    disk.flush(OSError("cannot be flushed"))
    disk.flush()
    bench.advance(10)

    assert [time - start for _, time, *_ in park.sent] == [1000, 1000]


def test_publisher_waits_for_the_files_of_a_new_segment(bench, park):
    made = message(b"x", properties=Properties(
        headers={"x-schedule": {"name": "a", "every": 1000}}).encode(), timestamp_ms=bench.now_ms)
    made.set_kind(1, schedule.SCHEDULED)
    made.may_wait = True

    assert (park.publish(made), callable(made.lacking), park.schedules.count) == (LATER, True, 0)
    made.may_wait = False
    assert park.publish(made) == 1
    bench.advance(1000)

    assert len(park.sent) == 1


def test_schedule_whose_times_cannot_be_told_is_refused_and_no_other(bench, park):
    """The file of its zone went between the check and the commit."""
    assert put(bench, park, "a", cron="* * * * *", timezone="Gone/Zone") == 0
    assert put(bench, park, "b", every=1000) == 1


class Full(Destination):
    closed = False


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("then", [None, "deleted", "replaced"])
def test_schedule_waits_for_room_where_it_goes(bench, park, closed, then):
    park.full = [Full("q")]
    park.full[0].closed = closed
    put(bench, park, "a", b"old", every=5000, missed="none")
    bench.advance(5010)
    assert park.sent == []

    if then is not None:
        put(bench, park, "a", b"" if then == "deleted" else b"new", every=1_000_000)
    park.full = []
    bench.advance(11_000)

    assert [body for *_, body in park.sent[:1]] == ([b"old"] if then is None else [])
    assert (park.schedules.count, park.store.unacked_count) == ((0, 0) if then == "deleted" else (1, 1))


def test_disk_without_room_for_the_next_time_holds_that_up_and_sends_nothing_twice(bench, park, monkeypatch):
    store, is_full = park.store, [True]
    start = bench.now_ms
    put(bench, park, "a", every=1000)
    append = schedules._copy

    def copy(*arguments):
        if is_full[0]:
            raise StoreFull(store.folder, 0, "no room")
        return append(*arguments)

    monkeypatch.setattr(schedules, "_copy", copy)
    bench.advance(3500)
    assert [time - start for _, time, *_ in park.sent] == [1000]
    is_full[0] = False

    bench.advance(2000)

    assert [time - start for _, time, *_ in park.sent] == [1000, 5000]


def test_user_without_the_right_sends_nothing_and_has_it_back(bench, park):
    allowed = set()
    park.may_write = allowed.__contains__
    put(bench, park, "a", every=1000, user="ann")
    put(bench, park, "of a token", every=1000)
    bench.advance(2100)
    assert [name for name, *_ in park.sent] == ["of a token"] * 2
    assert (park.schedules.sent_count, park.schedules.missed_count) == (2, 2)
    allowed.add("ann")

    bench.advance(1000)

    assert {name for name, *_ in park.sent[2:]} == {"a", "of a token"}


def test_places_of_replaced_messages_do_not_pile_up(bench, park):
    for number in range(1000):
        put(bench, park, "a", b"%d" % number, every=10_000_000)

    wait_until(lambda: park.store.unacked_count == 1, sleep=gevent.sleep)
    assert park.schedules._due.count < 200 and park.schedules.count == 1
    leap(bench, 10_000_000)
    assert len(park.sent) == 1


def test_replacements_that_wait_for_a_slow_disk_cost_no_more_each(bench):
    """They were looked through for each that was safe."""
    disk = Disk()
    park = make(bench, bench.store("park"), disk)
    for number in range(20_000):
        put(bench, park, "a", b"%d" % number, every=10_000_000)
    began = process_time()

    disk.flush()

    assert (park.store.unacked_count, process_time() - began < 2) == (1, True)


def test_no_more_than_so_many(bench, park, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_SCHEDULES", 2)

    assert [put(bench, park, name, every=1000) for name in "abbc"] == [1, 1, 1, 0]
    assert park.schedules.is_full("c") and not park.schedules.is_full("a")


def test_message_that_no_boot_can_read_is_set_aside_and_the_others_are_found(bench, park):
    put(bench, park, "a", every=1000)
    strange = message(b"x", properties=Properties(headers={"x-schedule": 5}).encode())
    strange.set_kind(1, schedule.SCHEDULED)
    park.store.append(strange)
    put(bench, park, "b", every=1000)

    found = again(bench, park)

    assert (found.schedules.names(), found.aside.count) == (["a", "b"], 1)


def test_message_is_shown(bench, park):
    put(bench, park, "a", b"body", every=1000)
    shown = Message()

    assert park.schedules.show("a", shown) == bench.now_ms + 1000 and shown.get_body() == b"body"
    assert park.schedules.show("b", shown) is None


def test_queue_without_schedules_has_nothing_of_them(bench, park):
    bench.publish(park, b"x", properties=Properties(headers={"x-delay": 5}).encode())
    bench.advance(10)

    assert park.schedules is None and len(park.sent) == 1


class Told:
    """What a schedule must have sent under its name: each of its times from ``start``, and none once it is
    over. ``repeats``: how many of its times may have come again.
    """

    def __init__(self, body, start):
        self.body, self.start = body, start
        self.over_ms, self.repeats = None, 0

    def check(self, sent, now_ms):
        mine = [(time, when) for _, time, when, body in sent if body == self.body]
        times = [time for time, _ in mine]
        end_ms = now_ms if self.over_ms is None else self.over_ms
        assert all(time <= when <= end_ms for time, when in mine)
        there = sorted(set(times))
        assert there == list(range(self.start, self.start + 1000 * len(there), 1000))
        assert len(times) - len(there) <= self.repeats


@pytest.mark.parametrize("seed", range(60))
def test_each_time_comes_whatever_happens(bench, seed):
    """Schedules are set, replaced and deleted, copies find no room, flushes come late and fail, and the
    broker is killed or ends in order, in any order.
    """
    random, disk, told, live = Random(seed), Disk(), [], {}
    bench.now_ms = bench.now_ms // 1000 * 1000 + 500
    park = make(bench, bench.store("park"), disk)
    everything = park.sent

    def over(name):
        if name in live:
            live.pop(name).over_ms = bench.now_ms

    def may_repeat():
        for one in live.values():
            one.repeats += 1

    for number in range(80):
        name, step = random.choice("abc"), random.choice((
            "put", "delete", "leap", "leap", "leap", "flush", "flush", "fail", "room", "kill", "end"))
        if step == "put":
            over(name)
            one = live[name] = Told(b"%d" % number, bench.now_ms // 1000 * 1000 + 1000)
            told.append(one)
            assert put(bench, park, name, one.body, every=1000, start=one.start, missed="all") == 1
        elif step == "delete":
            over(name)
            assert put(bench, park, name, b"") == 1
        elif step == "leap":
            leap(bench, random.randrange(1500))
        elif step in ("flush", "fail"):
            if step == "fail":
                may_repeat()
            disk.flush(None if step == "flush" else OSError("cannot be flushed"))
            bench.settle()
        elif step == "room":
            park.full = [] if park.full else [Full("q")]
        else:
            if step == "kill":
                may_repeat()
            else:
                park.hold_back()
                for _ in range(3):
                    disk.flush()
                park.write_out()
            disk.waiting.clear()
            park = again(bench, park, disk)
            park.sent = everything
        assert set(live) == set(park.schedules.names() if park.schedules is not None else ())
    park.full = []

    def is_still():
        leap(bench, 200)  # a transfer without room looks again after a second
        for _ in range(5):
            disk.flush()
            leap(bench, 0)
        last = bench.now_ms // 1000 * 1000
        sent = {(time, body) for _, time, _, body in everything}
        return park.store.unacked_count == len(live) and all(
            one.start > last or (last, one.body) in sent for one in live.values())

    wait_until(is_still, sleep=gevent.sleep)
    for one in told:
        one.check(everything, bench.now_ms)
