"""Segment log: sizes, rolls, what is open, what is flushed, and the end of a store."""
import errno
import os

import gevent
import pytest

from gomq_py.storage.disk.files import Files
from gomq_py.storage.errors import StoreClosed, StoreError, StoreFull, StoreLater
from gomq_py.storage.message import Message
from tests.support.stores import StoreBench
from tests.support.waiting import wait_until


def sizes(bench):
    return [os.path.getsize(path) for path in sorted((bench.folder / "queue").glob("msgs.*"))]


def open_maps(bench):
    """The numbers of the segments that this process has mapped, once what was to be closed is."""
    bench.finish_aside()
    with open("/proc/self/maps") as maps:
        lines = [line for line in maps if str(bench.folder / "queue" / "msgs.") in line]
    return sorted({int(line.split("msgs.")[1][:10]) for line in lines})


class FailingFiles(Files):
    """``create`` fails when told to, as on a full disk, and names do."""

    full = refuses_names = False

    def _rename(self, source, target):
        if self.refuses_names:
            raise OSError(errno.EIO, "Input/output error", source)
        return super()._rename(source, target)

    def create(self, path, size):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().create(path, size)


def test_segments_start_small_and_grow(tmp_path):
    bench = StoreBench(tmp_path)
    for _ in range(200):
        bench.push(bytes(50000))

    assert sizes(bench)[:4] == [65536, 524288, 4194304, 8388608]


@pytest.mark.parametrize("enabled", [True, False])
def test_segments_that_were_emptied_are_used_again(tmp_path, enabled):
    """Without syncing, too, where a pair was kept before its messages file had moved, and closed when it had:
    whoever took it could not write.
    """
    bench = StoreBench(tmp_path, enabled=enabled)
    for _ in range(2):
        bench.push(bytes(50000))
    bench.finish_aside()  # the segments have been told of a flush, or of none that was needed
    bench.drain()
    for _ in range(3):
        bench.finish_aside()
    assert [path.name[:5] for path in sorted((tmp_path / "pool").iterdir())] == ["acks.", "msgs."]

    msgs, acks = bench.pool.take(tmp_path / "msgs", tmp_path / "acks", 65536)
    bench.finish_aside()

    assert len(msgs.map) == msgs.size and len(acks.map) == acks.size
    assert sorted(os.listdir(tmp_path / "pool")) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_a_segment_that_does_not_get_its_name_closes_the_store_and_fails_whoever_waits_for_a_sync(
    tmp_path, enabled
):
    """It was written to under the pool's name, which the next boot removes:
    nothing in it may be confirmed.
    """
    files, answers = FailingFiles(), []
    bench = StoreBench(tmp_path, files, enabled=enabled, segment_bytes=65536)
    bench.push(bytes(40_000))
    bench.store.write_out()
    bench.finish_aside()
    files.refuses_names = True
    bench.push(bytes(40_000))
    assert bench.fenced == []

    bench.committer.after_sync(answers.append)
    bench.finish_aside()

    assert len(answers) == 1 and answers[0].errno == errno.EIO
    assert len(bench.fenced) == 1
    with pytest.raises(StoreClosed):
        bench.push(b"")
    bench.finish_aside()
    assert not [name for name in os.listdir(bench.pool.folder) if name.endswith("0001")]
    files.refuses_names = False
    bench.crash()
    assert [len(shown.body) for shown in bench.drain()] == [40_000]


def test_what_was_not_confirmed_goes_with_a_process_that_is_killed_before_its_segment_has_its_name(tmp_path):
    bench = StoreBench(tmp_path, enabled=True, segment_bytes=65536)
    bench.push(bytes(40_000))
    bench.store.write_out()
    bench.finish_aside()
    bench.push(bytes(40_000))
    bench.store.write_out()

    bench.crash()

    assert [len(shown.body) for shown in bench.drain()] == [40_000]
    assert sizes(bench) == [65536]


def test_a_large_record_gets_a_segment_that_just_holds_it(tmp_path):
    bench = StoreBench(tmp_path, segment_bytes=65536)
    bench.push(bytes(1000000))

    assert sizes(bench) == [(128 + 48 + 3 + 2 + 1000000 + 4095) & ~4095]


def test_a_record_that_fits_into_no_location_is_refused(tmp_path):
    bench = StoreBench(tmp_path)
    body = bytes(1 << 28)

    with pytest.raises(StoreError):
        bench.push(body)

    assert bench.store.ready_count == 0


def test_a_backlog_is_not_mapped(tmp_path):
    bench = StoreBench(tmp_path, enabled=True, segment_bytes=65536)
    for number in range(100):
        bench.push(b"%05d" % number * 1000)
    bench.store.write_out()
    bench.committer.wait()
    bench.committer.stop()

    assert len(sizes(bench)) == 9
    assert open_maps(bench) == [1, 9]
    assert [shown.body[:5] for shown in bench.drain()] == [b"%05d" % number for number in range(100)]


def test_a_transient_backlog_is_not_mapped_either_and_comes_back(tmp_path):
    (tmp_path / "queue").mkdir()
    bench = StoreBench(tmp_path, durable=False, segment_bytes=65536)
    for number in range(100):
        bench.push(b"%05d" % number * 1000)

    with open("/proc/self/maps") as maps:
        assert sum(str(tmp_path) in line for line in maps) <= 2
    assert [shown.body[:5] for shown in bench.drain()] == [b"%05d" % number for number in range(100)]


def test_a_full_disk_refuses_a_message_and_takes_the_next_when_there_is_room(tmp_path):
    bench = StoreBench(tmp_path, FailingFiles(), segment_bytes=65536)
    bench.push(bytes(60000))
    bench.files.full = True
    with pytest.raises(StoreFull):
        bench.push(bytes(60000))
    assert bench.store.ready_count == 1

    bench.files.full = False
    bench.push(b"next")

    assert [len(shown.body) for shown in bench.drain()] == [60000, 4]


def test_acking_works_on_a_full_disk(tmp_path):
    bench = StoreBench(tmp_path, FailingFiles())
    for number in range(100):
        bench.push(b"%d" % number)
    bench.files.full = True
    locations = [bench.shift()[0] for _ in range(100)]
    for location in locations[::2]:
        bench.store.delete(location)
    bench.store.write_out()

    bench.files.full = False
    bench.crash()

    assert bench.store.ready_count == 50


def test_a_closed_store_takes_and_gives_nothing(tmp_path):
    bench = StoreBench(tmp_path)
    bench.push(b"one")
    location, _ = bench.shift()
    bench.push(b"two")
    bench.close()

    with pytest.raises(StoreClosed):
        bench.push(b"three")
    assert bench.peek() is None
    bench.store.delete(location)
    bench.store.requeue(location)
    assert not bench.store.read(location, bench.message)
    bench.store.write_out()
    bench.store.close()
    assert open_maps(bench) == []


def test_a_failed_sync_fences_the_store(tmp_path):
    class BrokenDisk(Files):
        def sync(self, file):
            raise OSError(errno.EIO, "Input/output error", file.path)

    bench = StoreBench(tmp_path, BrokenDisk(), enabled=True)
    bench.push(b"one")
    with pytest.raises(OSError):
        bench.committer.wait()

    assert [error.errno for error in bench.fenced] == [errno.EIO]
    with pytest.raises(StoreClosed):
        bench.push(b"two")
    assert bench.peek() is None
    assert open_maps(bench) == []


def test_transient_messages_are_not_flushed(tmp_path):
    bench = StoreBench(tmp_path, enabled=True)
    answers = []
    bench.push(b"one", persistent=True)
    bench.committer.wait()
    syncs = bench.committer.syncs
    bench.push(b"two", persistent=False)
    bench.store.write_out()

    bench.committer.after_sync(answers.append)

    assert answers == [None] and bench.committer.syncs == syncs


def test_a_transaction_of_acks_is_flushed_when_marked(tmp_path):
    bench = StoreBench(tmp_path, enabled=True)
    bench.push(b"one")
    bench.push(b"two")
    bench.store.delete(bench.shift()[0])
    bench.committer.wait()
    answers = []
    bench.store.delete(bench.shift()[0])

    bench.store.mark()
    bench.committer.after_sync(answers.append)

    assert answers == []
    bench.committer.wait()
    assert answers == [None]


def test_a_deleted_store_leaves_nothing_and_fails_no_sync(tmp_path):
    bench = StoreBench(tmp_path, enabled=True, segment_bytes=65536)
    for _ in range(100):
        bench.push(bytes(5000))
    bench.drain()
    bench.push(b"last")
    bench.store.delete_files()
    bench.committer.wait()

    assert not (tmp_path / "queue").exists()


def test_ten_thousand_empty_stores_take_little_memory(tmp_path):
    def resident():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

    bench = StoreBench(tmp_path)
    folders = [f"{tmp_path}/q{number}" for number in range(10000)]
    before = resident()

    stores = [
        type(bench.store)(folder, bench.files, bench.pool, bench.committer, bytes(16)) for folder in folders
    ]

    assert len(stores) == 10000
    assert resident() - before < 40 * 1024  # KiB: 4 KiB each, with room for the interpreted twin


def test_message_that_may_wait_changes_nothing_until_its_folder_and_files_are_there(tmp_path):
    bench, told = StoreBench(tmp_path), []
    message = Message()
    message.assign(b"", b"q", b"\0\0", bytes(50000), 1, persistent=True)
    message.may_wait = True
    for waits in (True, False, True, False):  # for folder and first segment, and for the next
        if not waits:
            bench.store.append(message)
            continue
        with pytest.raises(StoreLater) as later:
            bench.store.append(message)
        later.value.wait(told.append)
        assert told == []
        wait_until(lambda: told, sleep=gevent.sleep)
        assert told.pop() is None

    bench.finish_aside()
    assert sizes(bench) == [65536, 524288] and bench.store.ready_count == 2
    message.may_wait = False
    for _ in range(10):  # a message that may not wait comes to where nothing is ready, all the same
        bench.store.append(message)
    assert bench.store.ready_count == 12
