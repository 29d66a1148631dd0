"""A store that is opened again in a thread finds, says and counts what a boot does."""
import pytest

from gomq_py.storage.stores.recovery import open_store
from gomq_py.storage.stores.reopening import open_in_thread
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.support.stores import INCARNATION, StoreBench

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
