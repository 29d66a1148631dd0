"""The priority store: order, counts, restarts and faults of a store per level."""
import gc
import os
import shutil

import pytest
from hypothesis import given, strategies as st

from gomq_py.storage.disk.files import MAPPED_DESCRIPTORS, Files
from gomq_py.storage.errors import StoreClosed, StoreError
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores.message_store import MessageStore
from gomq_py.storage.stores.priority_store import (
    PriorityStore, open_priority_store, open_with_levels, with_levels,
)
from gomq_py.storage.stores.recovery import open_store
from tests.support import resources
from tests.support.queues import message

INCARNATION = bytes(range(16))
PRIORITY_0 = b"\x08\x00\x00"  # properties


class PriorityBench:
    """One priority store with everything below it; ``reopen`` is a restart, ``crash`` one without a close."""

    default = 0  # priority of messages that name none

    def __init__(self, folder, max_priority=9, durable=True, enabled=False):
        self.enabled = enabled
        self.folder = folder
        self.max_priority = max_priority
        self.durable = durable
        self.files = Files()
        self.fenced = []
        self.start()

    def start(self):
        self.committer = GroupCommit(self.files, enabled=self.enabled)
        self.pool = SegmentPool(self.folder / "pool", self.files, self.committer)
        self.store, self.report = self.open(self.folder / "queue" if self.durable else self.folder)

    def open(self, folder):
        return open_priority_store(
            folder, self.files, self.pool, self.committer, INCARNATION, self.max_priority,
            durable=self.durable, listener=self)

    def reopen(self):
        self.store.close()
        self.committer.stop()
        self.start()

    def store_fenced(self, store, error):
        self.fenced.append((store, error))

    def publish(self, *messages):
        for body, priority in messages:
            self.store.append(message(body, priority=priority))
        self.store.write_out()

    def take(self):
        """(body, location) of the next message, now unacked; None when there is none."""
        shown = Message()
        if not self.store.peek(shown):
            return None
        body = shown.get_body()
        self.store.shift()
        return body, shown.describe()["location"]

    def drain(self):
        """Bodies of all that is ready, acked."""
        bodies = []
        while (taken := self.take()) is not None:
            bodies.append(taken[0])
            self.store.delete(taken[1])
        self.store.write_out()
        return bodies

    def counts(self):
        store = self.store
        return store.ready_count, store.ready_bytes, store.unacked_count, store.unacked_bytes


class GrowingBench(PriorityBench):
    """One whose store has levels from its first message with a priority on, as a quorum queue's."""

    default = 2

    def open(self, folder):
        store, report = open_with_levels(
            folder, self.files, self.pool, self.committer, INCARNATION, self.max_priority, self.default)
        store.listener = self
        return store, report

    def publish(self, *messages):
        if not self.has_levels() and any(priority for _, priority in messages):
            self.store = with_levels(self.store, self.max_priority, self.default)
        super().publish(*messages)

    def has_levels(self):
        return isinstance(self.store, PriorityStore)


@pytest.fixture
def bench(tmp_path):
    return PriorityBench(tmp_path)


@pytest.fixture
def growing(tmp_path):
    return GrowingBench(tmp_path, 31)


def test_higher_levels_come_first_and_each_in_order(bench):
    bench.publish((b"a0", 0), (b"a5", 5), (b"b0", 0), (b"b5", 5), (b"a9", 9), (b"c5", 5))

    assert bench.drain() == [b"a9", b"a5", b"b5", b"c5", b"a0", b"b0"]


def test_what_is_higher_overtakes_what_already_waits(bench):
    bench.publish((b"low", 1), (b"later", 1))
    assert bench.take()[0] == b"low"

    bench.publish((b"high", 2))

    assert [bench.take()[0] for _ in range(2)] == [b"high", b"later"]


@pytest.mark.parametrize("max_priority", [0, 1, 10, 255])
def test_a_priority_over_the_highest_counts_as_the_highest(tmp_path, max_priority):
    bench = PriorityBench(tmp_path, max_priority)

    bench.publish((b"zero", 0), (b"top", max_priority), (b"over", 255))

    assert bench.drain() == ([b"zero", b"top", b"over"] if max_priority == 0 else [b"top", b"over", b"zero"])


def test_counts_are_those_of_all_levels(bench):
    bench.publish((b"aaa", 1), (b"bb", 2), (b"c", 2))
    taken = bench.take()

    assert bench.counts() == (2, 4, 1, 2)
    bench.store.requeue(taken[1])
    assert bench.counts() == (3, 6, 0, 0)
    bench.drain()
    assert bench.counts() == (0, 0, 0, 0)


def test_a_requeued_message_goes_back_to_its_level_and_place(bench):
    bench.publish((b"a", 3), (b"b", 3), (b"c", 1))
    first, second, third = bench.take(), bench.take(), bench.take()

    for taken in (third, second, first):
        bench.store.requeue(taken[1])

    assert bench.drain() == [b"a", b"b", b"c"]


def test_purge_empties_every_level_but_not_what_is_unacked(bench):
    bench.publish((b"a", 1), (b"b", 2), (b"c", 3))
    taken = bench.take()

    assert bench.store.purge() == 2

    assert bench.counts() == (0, 0, 1, 1)
    bench.store.requeue(taken[1])
    assert bench.drain() == [b"c"]


def test_an_unacked_message_can_be_read(bench):
    bench.publish((b"a", 4))
    location = bench.take()[1]
    shown = Message()

    assert (
        bench.store.read(location, shown) and shown.get_body() == b"a" and shown.describe()["priority"] == 4
    )


def test_every_level_survives_a_restart(bench):
    bench.publish((b"a", 1), (b"b", 9), (b"c", 1), (b"d", 0))
    bench.store.delete(bench.take()[1])

    bench.reopen()

    assert bench.report.ready_count == 3 and bench.counts() == (3, 3, 0, 0)
    assert bench.drain() == [b"a", b"c", b"d"]


def test_what_was_unacked_is_ready_and_redelivered_after_a_kill(bench):
    bench.publish((b"a", 5), (b"b", 2))
    bench.take()
    bench.store.write_out()

    bench.start()

    shown = Message()
    assert bench.store.peek(shown) and shown.get_body() == b"a" and shown.describe()["redelivered"]
    assert bench.drain() == [b"a", b"b"]


def test_a_transient_store_leaves_no_files(tmp_path):
    bench = PriorityBench(tmp_path, durable=False)

    bench.publish((b"a", 1), (b"b", 2))

    assert sorted(os.listdir(tmp_path)) == ["pool"]
    assert bench.drain() == [b"b", b"a"]


def test_deleting_leaves_no_folder(bench):
    bench.publish((b"a", 1), (b"b", 2))

    bench.store.delete_files()

    assert not (bench.folder / "queue").exists()
    with pytest.raises(StoreClosed):
        bench.publish((b"c", 3))


@pytest.mark.parametrize("priority", [1, 7])
def test_a_fault_of_one_level_closes_the_store_and_is_told_once(bench, priority):
    bench.publish((b"a", 1), (b"b", 2))
    error = OSError(5, "Input/output error")

    bench.store.browsed()[0].fence(error)

    assert [told[1] for told in bench.fenced] == [error] and bench.fenced[0][0] is bench.store
    with pytest.raises(StoreClosed):
        bench.publish((b"c", priority))
    assert bench.take() is None


def test_a_location_of_a_level_that_is_not_there_is_refused(bench):
    with pytest.raises(StoreError, match="level 3"):
        bench.store.delete(3 << 56 | 1 << 28 | 128)
    with pytest.raises(StoreError, match="level 200"):
        bench.store.requeue(200 << 56 | 1 << 28 | 128)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["take", "ack", "requeue", "restart", "kill", "purge"]), st.integers(0, 9)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("kind", [PriorityBench, GrowingBench])
@given(steps=steps)
def test_the_store_equals_a_sorted_list(tmp_path_factory, kind, steps):
    """Any mix of publishing, taking, acking, requeueing and restarts shows what a list sorted
    by priority and age shows.
    """
    bench = kind(tmp_path_factory.mktemp("priority"), 3)
    default, ready, unacked, number = kind.default, [], [], 0
    for step, value in steps:
        if step == "publish":
            number += 1
            bench.publish((b"%d" % number, value))
            ready.append((-min(value or default, 3), number))
        elif step == "take":
            taken = bench.take()
            expected = min(ready, default=None)
            assert (taken and taken[0]) == (expected and b"%d" % expected[1])
            if taken:
                ready.remove(expected)
                unacked.append((expected, taken[1]))
        elif step in ("ack", "requeue") and unacked:
            entry, location = unacked.pop(value % len(unacked))
            if step == "ack":
                bench.store.delete(location)
            else:
                bench.store.requeue(location)
                ready.append(entry)
        elif step in ("restart", "kill"):
            bench.store.write_out()
            bench.reopen() if step == "restart" else bench.start()
            ready += [entry for entry, _ in unacked]
            unacked = []
        elif step == "purge":
            assert bench.store.purge() == len(ready)
            bench.store.mark()
            bench.committer.wait()  # until then a kill undoes it
            ready = []
        assert bench.counts()[::2] == (len(ready), len(unacked))
    assert bench.drain() == [b"%d" % entry[1] for entry in sorted(ready)]


# a store that is a queue's own until a message with a priority comes

def test_store_without_priorities_is_a_message_store_over_restarts(growing):
    growing.publish((b"a", 0), (b"b", 0))

    growing.reopen()

    assert type(growing.store) is MessageStore and growing.drain() == [b"a", b"b"]


def test_folder_of_a_plain_queue_gets_levels_and_keeps_its_messages(growing):
    """A folder as it was before quorum queues had priorities."""
    growing.store.close()
    growing.store, _ = open_store(
        growing.folder / "queue", growing.files, growing.pool, growing.committer, INCARNATION)
    growing.store.append(message(b"old", priority=4))
    growing.reopen()
    assert type(growing.store) is MessageStore

    growing.publish((b"new", 9))

    assert growing.drain() == [b"new", b"old"]


def test_messages_without_a_priority_have_the_default_one(growing):
    """One that names 0 comes behind them."""
    growing.publish((b"a", 0), (b"b", 5))
    growing.store.append(message(b"least", properties=PRIORITY_0))
    growing.publish((b"c", 1), (b"d", 2), (b"e", 0))

    growing.reopen()

    assert growing.drain() == [b"b", b"a", b"d", b"e", b"c", b"least"]


def test_message_that_comes_back_on_the_lowest_level_has_its_place(growing):
    growing.publish((b"a", 1))
    for _ in range(2):
        growing.store.append(message(b"least", properties=PRIORITY_0))
    growing.store.write_out()
    assert growing.take()[0] == b"a"

    taken = growing.take()
    growing.store.requeue(taken[1])

    assert growing.take() == taken and growing.drain() == [b"least"]


def test_levels_leave_what_was_taken_and_shown_before_as_it_is(growing):
    growing.publish((b"a", 0), (b"b", 0), (b"c", 0))
    taken, shown = growing.take(), Message()
    assert growing.store.peek(shown) and shown.get_body() == b"b"

    growing.publish((b"high", 7))
    growing.store.shift()

    assert growing.counts() == (2, 5, 2, 2)
    growing.store.requeue(taken[1])
    growing.store.delete(shown.describe()["location"])
    assert growing.drain() == [b"high", b"a", b"c"]


@pytest.mark.parametrize("end", ["reopen", "start"])
def test_levels_are_there_after_a_stop_and_a_kill(growing, end):
    growing.publish((b"a", 0), (b"b", 31), (b"c", 9), (b"d", 255), (b"e", 0))

    getattr(growing, end)()

    assert growing.report.ready_count == 5 and growing.has_levels()
    assert growing.drain() == [b"b", b"d", b"c", b"a", b"e"]


def test_store_whose_levels_were_used_up_is_a_message_store_after_a_restart(growing):
    growing.publish((b"a", 0), (b"b", 5))
    assert growing.take()[0] == b"b"
    growing.drain()
    growing.reopen()
    growing.drain()

    growing.reopen()

    assert type(growing.store) is MessageStore
    growing.publish((b"c", 0), (b"d", 5))
    growing.reopen()
    assert growing.drain() == [b"d", b"c"]


def test_levels_without_files_whose_messages_an_orderly_stop_has_listed_are_missed(growing):
    growing.publish((b"a", 0), (b"b", 5))
    growing.store.close()
    growing.committer.stop()
    listed = {store.folder: store.listed() for store in growing.store.browsed()}
    shutil.rmtree(growing.folder / "queue" / "level.005")
    growing.committer = GroupCommit(growing.files, enabled=False)
    growing.pool = SegmentPool(growing.folder / "pool", growing.files, growing.committer)
    growing.pool.listed = listed

    growing.store, report = growing.open(growing.folder / "queue")

    assert report.gone_count == 1 and growing.has_levels()
    growing.publish((b"c", 5))
    assert growing.drain() == [b"c", b"a"]


def test_deliveries_that_were_no_failures_are_counted_on_each_level(growing):
    growing.publish((b"a", 0), (b"b", 5))
    for _ in range(2):
        location = growing.take()[1]

        assert growing.store.excuse(location, 1) == 1
        assert growing.store.excuse(location, 0) == 1


def descriptors_below(folder, collect=True):
    """How many this process has of files in the folder; ``collect``: without those of nobody."""
    if collect:
        gc.collect()
    return sum(count for path, count in resources.descriptors().items() if path.startswith(str(folder)))


def test_queue_of_255_levels_needs_few_descriptors(tmp_path):
    """They are those of two files for each level, but most of them are mapped without: order, acks, flushes
    and restarts are as with.
    """
    bench = PriorityBench(tmp_path, 255, enabled=True)
    for _ in range(2):
        bench.publish(*((b"%d" % level, level) for level in range(256)))
        bench.committer.wait()

    used = descriptors_below(tmp_path)
    assert MAPPED_DESCRIPTORS - 10 <= used <= MAPPED_DESCRIPTORS + 30

    for level in reversed(range(156, 256)):
        for _ in range(2):
            body, location = bench.take()
            assert body == b"%d" % level
            bench.store.delete(location)
    bench.store.mark()
    bench.committer.wait()
    bench.reopen()

    assert descriptors_below(tmp_path) <= MAPPED_DESCRIPTORS + 30
    assert bench.drain() == [b"%d" % level for level in reversed(range(156)) for _ in range(2)]
    bench.store.close()
    bench.committer.stop()


def test_levels_that_a_purge_has_emptied_give_their_descriptors_back_when_they_have_rested(tmp_path):
    timers = []

    class Timer:
        def __init__(self, callback):
            self.callback = callback
            timers.append(self)

        def stop(self):
            if self in timers:
                timers.remove(self)

    bench = PriorityBench(tmp_path, 255)
    bench.pool = SegmentPool(
        tmp_path / "pool", bench.files, bench.committer, in_threads=False,
        start_timer=lambda _after_ms, call: Timer(call),
    )
    bench.store, _ = open_priority_store(
        tmp_path / "queue", bench.files, bench.pool, bench.committer, INCARNATION, 255, listener=bench
    )
    bench.publish(*((b"x", level) for level in range(256)))
    used = descriptors_below(tmp_path)

    assert bench.store.purge() == 256
    for _ in range(40):
        for timer in list(timers):
            timer.stop()
            timer.callback()
    bench.committer.wait()
    bench.committer.wait()

    assert used >= MAPPED_DESCRIPTORS - 10 and not timers
    kept_by_the_pool = 4 * 2
    assert descriptors_below(tmp_path) <= kept_by_the_pool


def test_purge_of_levels_from_before_a_restart_needs_few_descriptors(tmp_path):
    """Their files lose their names together, and folders are flushed before the room of all of
    them has been given back.
    """
    bench = PriorityBench(tmp_path, 255, enabled=True)
    bench.publish(*((b"x", level) for level in range(256)))
    bench.committer.wait()
    bench.reopen()
    used, flush = [], bench.files.sync_folder

    def sync_folder(path):
        used.append(descriptors_below(tmp_path, collect=False))
        flush(path)

    bench.files.sync_folder = sync_folder
    gc.collect()

    assert bench.store.purge() == 256
    for _ in range(2):
        bench.committer.wait()

    assert max(used) <= 30
    bench.store.close()
    bench.committer.stop()
