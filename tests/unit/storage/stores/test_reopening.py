"""A store that is opened again in a thread finds, says and counts what a boot does."""
import threading

import gevent
import pytest

from gomq_py.storage.disk.files import Files
from gomq_py.storage.stores.recovery import open_store
from gomq_py.storage.stores.reopening import open_in_thread
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.support.mirror import Mirror
from tests.support.stores import INCARNATION, StoreBench
from tests.support.waiting import in_time, wait_until

COUNT = 5


@pytest.fixture
def bench(tmp_path):
    bench = StoreBench(tmp_path, enabled=True)
    yield bench
    bench.store.forget_files()
    bench.committer.stop()


@pytest.mark.parametrize("opening", [open_store, open_stream_store])
def test_damage_that_a_store_opened_in_a_thread_meets_is_counted_and_kept_as_at_a_boot(bench, opening):
    folder = bench.folder / "other"

    def open_again():
        bench.store.forget_files()
        bench.store, report = open_in_thread(
            opening, folder, bench.files, bench.pool, bench.committer, INCARNATION
        )
        return report.lost, bench.pool.damage.records, sorted(bench.pool.damage.kept_paths)

    open_again()
    for number in range(COUNT):
        bench.push(b"body-%d" % number)
    bench.store.write_out()
    bench.committer.wait()
    path, = folder.glob("msgs.*")
    path.write_bytes(path.read_bytes().replace(b"body-2", b"BODY-2"))

    lost, counted, kept = open_again()

    assert (lost, counted) == (1, 1) and kept == [str(path) for path in folder.glob("damaged.*")] != []
    assert open_again()[1:] == (counted, kept)


class HeardIn(Mirror):
    """A mirror that notes in which threads it hears. ``flushes``: how often a flush was told of."""

    def __init__(self, source, copy):
        super().__init__(source, copy)
        self.threads, self.flushes = set(), 0

    def _here(self, path):
        self.threads.add(threading.get_native_id())
        return super()._here(path)

    def flushed(self):
        self.flushes += 1


@pytest.mark.parametrize("opening", [open_store, open_stream_store])
def test_replicators_hear_in_the_hub_of_what_a_store_opened_in_a_thread_has_changed(tmp_path, opening):
    (tmp_path / "data").mkdir()
    mirror, opened_in = HeardIn(tmp_path / "data", tmp_path / "copy"), []

    def noted(*arguments):
        opened_in.append(threading.get_native_id())
        return opening(*arguments)

    bench = StoreBench(tmp_path / "data", files=Files((mirror,)), enabled=True)
    folder = bench.folder / "other"
    for _ in range(3):
        bench.store.forget_files()
        bench.store, _ = open_in_thread(noted, folder, bench.files, bench.pool, bench.committer, INCARNATION)
        before = mirror.flushes
        for _ in range(COUNT):
            bench.push(b"body")
        bench.store.write_out()
        bench.committer.wait()
        assert mirror.flushes > before
    (*_, path), flushes = sorted(folder.glob("msgs.*")), mirror.flushes
    path.write_bytes(path.read_bytes().replace(b"body", b"BODY", 1))
    bench.store.forget_files()
    bench.store, report = open_in_thread(noted, folder, bench.files, bench.pool, bench.committer, INCARNATION)
    bench.store.write_out()
    bench.committer.wait()

    assert report.lost == 1 and mirror.flushes > flushes
    assert threading.get_native_id() not in opened_in and mirror.threads == {threading.get_native_id()}
    assert mirror.differences() == [f"other/{path.name}"]  # damaged behind the seam
    bench.store.forget_files()
    bench.committer.stop()


def test_greenlet_that_is_killed_while_its_thread_opens_a_store_tells_replicators_nothing(tmp_path):
    """Nor does the thread, which goes on."""
    (tmp_path / "data").mkdir()
    mirror = HeardIn(tmp_path / "data", tmp_path / "copy")
    bench = StoreBench(tmp_path / "data", files=Files((mirror,)), enabled=True)
    bench.committer.wait()
    events, flushes, half, go_on, end = mirror.events, mirror.flushes, *(threading.Event() for _ in range(3))

    def opening(folder, files, pool, committer):
        files.create(f"{folder}/acks.1", 4096)
        half.set()
        assert go_on.wait(in_time(20))
        files.create(f"{folder}/acks.2", 4096)
        files.register.flushed()
        end.set()

    reopening = gevent.spawn(
        open_in_thread, opening, tmp_path / "data", bench.files, bench.pool, bench.committer)
    wait_until(half.is_set, sleep=gevent.sleep)
    reopening.kill()
    go_on.set()
    wait_until(end.is_set, sleep=gevent.sleep)

    assert (mirror.events, mirror.flushes) == (events, flushes)
    bench.close()
