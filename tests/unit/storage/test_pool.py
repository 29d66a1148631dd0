"""Segment pool: what is used again, and when."""
import os

import pytest

from gomq_py.storage.files import Files
from gomq_py.storage.format.acks import capacity_for
from gomq_py.storage.pool import SegmentPool

SIZE = 65536


class HeldCommitter:
    """A committer whose sync ends when the test says so."""

    enabled = True

    def __init__(self):
        self.folders = []
        self.callbacks = []

    def mark_folder(self, path):
        self.folders.append(os.fspath(path))

    def after_sync(self, callback, hurry=True):
        self.callbacks.append(callback)

    def finish(self, error=None):
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback(error)


class Bench:
    """A pool, a queue's folder beside it, and pairs by number."""

    def __init__(self, root):
        self.root = root
        self.queue = root / "queue"
        self.queue.mkdir()
        self.files = Files()
        self.committer = HeldCommitter()
        self.pool = SegmentPool(root / "pool", self.files, self.committer, segment_bytes=SIZE, kept_pairs=2)

    def paths(self, number):
        return str(self.queue / f"msgs.{number:010d}"), str(self.queue / f"acks.{number:010d}")

    def take(self, number, size=SIZE):
        return self.pool.take(*self.paths(number), size)

    def retire(self, number, pair, synced):
        self.pool.retire(*pair, *self.paths(number), synced)

    def names(self):
        return sorted(os.listdir(self.queue)), sorted(os.listdir(self.pool.folder))


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_a_new_pair_has_room_for_an_ack_of_each_record(bench):
    msgs, acks = bench.take(1)

    assert (msgs.size, acks.size) == (SIZE, capacity_for(SIZE))


def test_a_pair_that_was_never_flushed_is_used_again_at_once(bench):
    pair = bench.take(1)
    bench.retire(1, pair, synced=False)

    assert bench.take(2) == pair
    assert bench.names() == (["acks.0000000002", "msgs.0000000002"], [])


def test_a_flushed_pair_is_used_again_only_after_its_old_name_is_gone_for_good(bench):
    pair = bench.take(1)
    bench.retire(1, pair, synced=True)
    assert bench.committer.folders == [str(bench.queue)]
    assert bench.names() == (["acks.0000000001"], ["msgs.0000000001"])  # the acks must not go before the messages

    other = bench.take(2)
    assert other[0] is not pair[0]
    bench.committer.finish()

    assert bench.take(3) == pair


def test_after_a_failed_flush_the_acks_stay_where_they_are(bench):
    bench.retire(1, bench.take(1), synced=True)

    bench.committer.finish(OSError("disk"))

    assert "acks.0000000001" in bench.names()[0]


def test_a_pair_somebody_holds_is_not_used_again(bench):
    pair = bench.take(1)
    pair[0].retain()
    bench.retire(1, pair, synced=False)

    assert bench.take(2)[0] is not pair[0]
    assert not pair[0].closed
    pair[0].release()
    assert pair[0].closed


def test_other_sizes_and_too_many_are_unlinked(bench):
    pairs = [bench.take(number) for number in range(1, 5)]
    for number, pair in enumerate(pairs, 1):
        bench.retire(number, pair, synced=False)
    bench.retire(9, bench.take(9, 2 * SIZE), synced=False)

    assert bench.names() == ([], ["acks.0000000001", "acks.0000000002", "msgs.0000000001", "msgs.0000000002"])
    assert [pair[0].closed for pair in pairs] == [False, False, True, True]


def test_a_folder_that_goes_away_takes_its_waiting_acks_along(bench):
    bench.retire(1, bench.take(1), synced=True)
    bench.pool.forget(str(bench.queue))
    bench.files.remove_tree(bench.queue)

    bench.committer.finish()

    assert bench.names == bench.names and bench.pool.take_unnamed(bench.root, SIZE) is not None


def test_what_an_earlier_run_left_in_the_pool_is_removed(bench):
    bench.retire(1, bench.take(1), synced=False)

    SegmentPool(bench.pool.folder, bench.files, bench.committer, segment_bytes=SIZE)

    assert bench.names() == ([], [])


def test_files_without_a_name_go_round_by_themselves(bench):
    file = bench.pool.take_unnamed(bench.root, SIZE)
    bench.pool.retire_unnamed(file)

    assert bench.pool.take_unnamed(bench.root, SIZE) is file
    assert bench.pool.take_unnamed(bench.root, SIZE) is not file


def test_generations_are_never_the_same(bench):
    other = SegmentPool(bench.pool.folder, bench.files, bench.committer)

    generations = [pool.next_generation() for pool in (bench.pool, other) for _ in range(100)]

    assert len(set(generations)) == 200


def test_a_failed_creation_leaves_no_half_pair(bench):
    open(bench.paths(1)[1], "w").close()

    with pytest.raises(OSError):
        bench.take(1)

    assert bench.names()[0] == ["acks.0000000001"]


def test_close_lets_go_of_everything(bench):
    pair = bench.take(1)
    bench.retire(1, pair, synced=False)
    unnamed = bench.pool.take_unnamed(bench.root, SIZE)
    bench.pool.retire_unnamed(unnamed)

    bench.pool.close()

    assert pair[0].closed and pair[1].closed and unnamed.closed
    assert bench.names() == ([], [])
