"""Stage: messages of a queue that are put together and written with their batch."""
import pytest

from gomq_py.storage.disk.open_file import File
from gomq_py.storage.errors import StoreClosed, StoreError
from gomq_py.storage.stores.recovery import open_store
from tests.support.faulty_files import FaultyFiles
from tests.support.stores import INCARNATION, StoreBench


@pytest.fixture
def uncached(monkeypatch):
    """The system never has pages for a new file: all that is appended is written with calls."""
    monkeypatch.setattr(File, "cached", property(lambda file: 0, lambda file, cached: None))


def numbered(count, start=0):
    return [b"%d" % number for number in range(start, start + count)]


def push_all(bench, bodies):
    for body in bodies:
        bench.push(body)


def test_a_queue_that_grows_is_written_to_with_calls(tmp_path):
    """Nobody reads where it is written, so that pages of new files would be cleared, and faults, for
    nothing. The first two segments begin before that is known.
    """
    files = FaultyFiles()
    bench = StoreBench(tmp_path, files, segment_bytes=65536)
    bodies = [b"%05d" % number * 20 for number in range(3000)]
    for start in range(0, 3000, 100):
        push_all(bench, bodies[start:start + 100])
        bench.store.write_out()
        bench.finish_aside()

    calls = [call for call, _ in files.calls]
    assert 8 <= calls.count("put") <= 40
    bench.crash()
    assert [shown.body for shown in bench.drain()] == bodies and not bench.damaged


def test_a_queue_that_is_consumed_from_is_written_through_its_mapping(tmp_path):
    files = FaultyFiles()
    bench = StoreBench(tmp_path, files, segment_bytes=65536)
    for number in range(60):
        push_all(bench, numbered(100, 100 * number))
        bench.store.write_out()
        assert [shown.body for shown in bench.drain()] == numbered(100, 100 * number)
        bench.finish_aside()

    assert "put" not in [call for call, _ in files.calls]


def test_a_killed_process_keeps_a_batch_that_has_ended(tmp_path, uncached):
    bench = StoreBench(tmp_path)
    push_all(bench, numbered(500))
    bench.store.write_out()
    push_all(bench, numbered(7, 500))  # of a batch that never ends

    bench.crash()

    assert [shown.body for shown in bench.drain()] == numbered(500)
    assert not bench.damaged and bench.report.lost == 0


def test_a_message_for_at_once_is_in_the_file_with_all_before_it(tmp_path, uncached):
    bench = StoreBench(tmp_path)
    push_all(bench, numbered(5))
    bench.message.assign(b"", b"q", b"\0\0", b"5", 1700000000000)
    bench.message.at_once = True
    bench.store.append(bench.message)
    bench.message.at_once = False

    bench.crash()

    assert [shown.body for shown in bench.drain()] == numbered(6)


def see_by_cursor(bench, locations):
    assert [shown.body for shown in bench.drain()] == numbered(10)


def see_by_location(bench, locations):
    assert bench.store.pick(locations[7])
    assert bench.store.read(locations[7], bench.message) and bench.message.get_body() == b"7"
    bench.store.requeue(locations[7])
    assert [shown.body for shown in bench.drain()] == [b"7", *numbered(7), *numbered(2, 8)]


def see_by_browser(bench, locations):
    number, position = bench.store.end_of_log()
    assert position == bench.store.browsable(number).end > 10 * 40
    assert bench.store.layout()[0][2] > 10 * 40
    assert bench.store.oldest_ready_ms() == 1700000000000


def see_by_purge(bench, locations):
    assert bench.store.purge() == 10
    assert bench.peek() is None and bench.store.ready_count == 0
    bench.push(b"new")
    assert [shown.body for shown in bench.drain()] == [b"new"]


def see_by_place(bench, locations):
    place = bench.store.place_of(48)
    bench.push(b"there")
    assert bench.store.has_record(place, 0) and not bench.store.has_record(bench.store.place_of(48), 0)
    assert [shown.body for shown in bench.drain()] == [*numbered(10), b"there"]


@pytest.mark.parametrize("see", [see_by_cursor, see_by_location, see_by_browser, see_by_purge, see_by_place])
@pytest.mark.parametrize("durable", [True, False])
def test_whoever_looks_within_a_batch_finds_all_of_it(tmp_path, uncached, see, durable):
    (tmp_path / "queue").mkdir()
    bench = StoreBench(tmp_path, durable=durable)
    locations = [bench.push(body) for body in numbered(10)]

    see(bench, locations)

    assert bench.pool.stage.user is None


def test_one_store_has_the_stage_and_the_other_writes_through_its_mapping(tmp_path, uncached):
    bench = StoreBench(tmp_path)
    other, _ = open_store(
        tmp_path / "other", bench.files, bench.pool, bench.committer, INCARNATION, listener=bench)
    stores = bench.store, other
    for number in range(1000):
        bench.store = stores[number % 2]
        push_all(bench, numbered(3, 3 * number))
    for bench.store in stores:
        bench.store.write_out()

    for turn, bench.store in enumerate(stores):
        assert [shown.body for shown in bench.drain()] == [
            body for number in range(turn, 1000, 2) for body in numbered(3, 3 * number)]


@pytest.mark.parametrize("octets", [20_000, 40_000, 200_000])
def test_large_messages_in_a_batch_keep_their_places(tmp_path, uncached, octets):
    bench = StoreBench(tmp_path, segment_bytes=1 << 20)
    bodies = [body.rjust(octets if number % 3 == 2 else 1) for number, body in enumerate(numbered(30))]
    push_all(bench, bodies)
    bench.store.write_out()

    bench.crash()
    assert [shown.body for shown in bench.drain()] == bodies and not bench.damaged


@pytest.mark.parametrize("ending", ["write_out", "sync", "full", "roll", "peek", "close"])
def test_a_batch_that_cannot_be_written_fences_the_store_and_confirms_nothing(tmp_path, uncached, ending):
    files = FaultyFiles()
    bench = StoreBench(tmp_path, files, enabled=True, segment_bytes=1 << 20 if ending == "full" else 65536)
    push_all(bench, numbered(100))
    bench.committer.wait()
    answers = []
    push_all(bench, numbered(10, 100))
    files.fail_at, files.how = len(files.calls) + 1, "dead"
    bench.committer.after_sync(answers.append)

    if ending == "write_out":
        bench.store.write_out()
    elif ending in ("full", "roll"):
        with pytest.raises(StoreClosed):
            push_all(bench, numbered(5000, 110))
    elif ending == "peek":
        assert bench.drain() == [] or bench.fenced
    elif ending == "close":
        bench.store.close()
    with pytest.raises(StoreError):
        bench.committer.wait()

    assert [type(answer) for answer in answers] == [StoreClosed]
    assert len(bench.fenced) == 1 and bench.pool.stage.user is None
    with pytest.raises(StoreClosed):
        bench.push(b"more")
    files.fail_at, files.how = None, "fail"
    bench.crash()
    assert [shown.body for shown in bench.drain()] == numbered(100)
    bench.close()


@pytest.mark.parametrize("verb", ["pick", "shift"])
def test_who_takes_what_came_back_while_a_batch_cannot_be_written_hears_so(tmp_path, uncached, verb):
    files = FaultyFiles()
    bench = StoreBench(tmp_path, files)
    push_all(bench, numbered(3))
    location = bench.shift()[0]
    bench.store.requeue(location)
    bench.store.write_out()
    bench.peek()
    push_all(bench, numbered(3, 3))
    files.fail_at, files.how = len(files.calls) + 1, "dead"

    if verb == "pick":
        assert not bench.store.pick(location)
    else:
        bench.store.shift()

    assert len(bench.fenced) == 1 and bench.pool.stage.user is None and bench.peek() is None


def test_a_store_that_is_deleted_within_a_batch_leaves_the_stage_to_others(tmp_path, uncached):
    bench = StoreBench(tmp_path)
    push_all(bench, numbered(10))

    bench.store.delete_files()

    assert bench.pool.stage.user is None
