"""Stream store and cursor: offsets, any number of readers, whole segments dropped, restarts."""
import errno
import os

import gevent
import pytest

from gomq_py.broker.features.stream_offset import FIRST, LAST, NEWEST, NEXT, NUMBER, SINCE, StreamStart
from gomq_py.storage.disk.files import Files
from gomq_py.storage.errors import StoreClosed, StoreError
from gomq_py.storage.message import Message
from gomq_py.storage.segments.damage import KEPT_COPIES
from gomq_py.storage.segments.pool import ALONE
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.durability import flush_pool
from tests.support.no_switch import no_switch
from tests.support.stores import INCARNATION
from tests.support.streams import SEGMENT_BYTES, StreamBench
from tests.support.waiting import wait_until


@pytest.fixture
def bench(tmp_path):
    bench = StreamBench(tmp_path)
    yield bench
    bench.store.close()
    bench.committer.stop()


def test_offsets_count_from_0_over_segments(bench):
    bench.push(4000)

    assert bench.read_all() == list(range(4000))
    assert [part["first_offset"] for part in bench.store.describe()][0] == 0
    assert len(bench.store.describe()) > 2
    assert (bench.store.first_offset, bench.store.next_offset, bench.store.ready_count) == (0, 4000, 4000)


def test_append_and_read_do_not_switch(bench):
    cursor = bench.cursor()
    with no_switch():
        bench.push(3000)
        bench.read(cursor)


def test_reading_removes_nothing_and_readers_are_independent(bench):
    one, other = bench.cursor(), bench.cursor(2500)
    bench.push(3000)

    assert bench.read(one, 10) == list(range(10))
    assert bench.read(other) == list(range(2500, 3000))
    assert bench.read(one) == list(range(10, 3000))
    assert bench.read_all() == list(range(3000))


@pytest.mark.parametrize("offset", [0, 1, 1167, 1168, 1169, 2999, 3000, 3005])
def test_cursor_begins_at_any_offset_and_waits_for_one_that_has_not_come(bench, offset):
    bench.push(3000)
    cursor = bench.cursor(offset)

    assert bench.read(cursor) == list(range(offset, 3000))
    bench.push(10)
    assert bench.read(cursor) == list(range(max(3000, offset), 3010))


def test_cursor_at_the_end_sees_what_comes_without_walking(bench):
    bench.push(100)
    cursor = bench.cursor(bench.store.next_offset)

    assert bench.read(cursor) == []
    bench.push(2000)
    assert bench.read(cursor) == list(range(100, 2100))


def push_over_a_segment_made_ahead(bench):
    """Two segments, the second in a file that has its own name once the hub has had a turn."""
    made = []
    bench.pool.wait_for(SEGMENT_BYTES, ALONE, (), made.append)
    wait_until(lambda: made, sleep=gevent.sleep)
    bench.push(2000)


def test_readers_are_shown_only_what_a_kill_leaves(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(10)
    bench.sync()
    early = bench.cursor()
    push_over_a_segment_made_ahead(bench)
    late, at_the_end = bench.cursor(1500), bench.cursor(bench.store.next_offset)
    bench.push(10)

    shown = [bench.read(cursor) for cursor in (early, late, at_the_end)]
    bench.crash()

    assert 10 < len(shown[0]) < 2000
    assert shown == [bench.read_all(), [], []]
    bench.store.close()
    bench.committer.stop()


def test_a_time_is_found_in_segments_that_readers_are_not_shown_yet(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(10)
    bench.sync()
    push_over_a_segment_made_ahead(bench)
    cursors = [bench.cursor(), bench.cursor(), bench.cursor()]

    offsets = [cursor.skip_before(bench.epoch_ms + ms) for cursor, ms in zip(cursors, (5, 1900, 9999))]
    assert bench.read(cursors[1]) == []
    wait_until(lambda: bench.opened, sleep=gevent.sleep)
    bench.push(1)

    assert offsets == [5, 1900, 2010]
    assert [bench.read(cursor)[0] for cursor in cursors] == offsets
    bench.store.close()
    bench.committer.stop()


def test_readers_go_on_once_the_file_has_its_name(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(10)
    bench.sync()
    early, at_the_end = bench.cursor(), bench.cursor(5000)
    push_over_a_segment_made_ahead(bench)
    at_the_end.seek(bench.store.next_offset)
    bench.push(10)
    shown = bench.read(early)

    wait_until(lambda: bench.opened, sleep=gevent.sleep)

    assert shown + bench.read(early) == list(range(2020))
    assert bench.read(at_the_end) == list(range(2010, 2020))
    bench.store.close()
    bench.committer.stop()


def test_dropped_segment_moves_its_readers_to_the_first_message_kept(bench):
    bench.push(3000)
    cursor = bench.cursor()
    bench.read(cursor, 5)

    bench.store.drop_oldest()

    first = bench.store.first_offset
    assert first > 1000
    assert bench.read(cursor) == list(range(first, 3000))
    assert bench.read_all(7) == list(range(first, 3000))
    assert bench.store.ready_count == 3000 - first


def test_newest_segment_is_never_dropped(bench):
    bench.push(10)
    assert bench.store.oldest() is None

    bench.push(2000)
    assert bench.store.oldest()[0] > 1000


def test_dropped_files_go_once_the_rest_is_on_disk(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(3000)
    names = bench.files_there()

    bench.store.drop_oldest()

    assert bench.files_there() == names
    bench.sync()
    assert bench.files_there() == names[1:]
    bench.reopen()
    assert bench.read_all()[0] == bench.store.first_offset > 0


class HeldFiles(Files):
    """Flushes, in greenlets, of files whose names are in ``allowed`` alone; the others wait.

    ``begun`` has the names of all.
    """

    def __init__(self):
        super().__init__()
        self.allowed, self.begun = set(), []

    def sync(self, file):
        name = os.path.basename(file.path)
        self.begun.append(name)
        wait_until(lambda: name in self.allowed, sleep=gevent.sleep)
        super().sync(file)


def test_dropped_files_stay_until_a_sync_that_began_after_the_drop(tmp_path, monkeypatch):
    """One that was under way covers an earlier drop, and not the segment that the log goes on with since."""
    flush_pool.use(monkeypatch)
    files = HeldFiles()
    bench = StreamBench(tmp_path, files, enabled=True)
    bench.push(3000)
    names = bench.files_there()
    bench.store.drop_oldest()
    wait_until(lambda: files.begun, sleep=gevent.sleep)
    bench.store.purge()
    newest = os.path.basename(bench.store.describe()[-1]["file"])

    files.allowed.update(names)
    wait_until(lambda: bench.files_there()[0] != names[0], sleep=gevent.sleep)

    assert bench.files_there() == [*names[1:], newest]
    files.allowed.add(newest)
    bench.sync()
    assert bench.files_there() == [newest]
    bench.store.close()
    bench.committer.stop()


def test_offsets_go_on_after_a_restart(bench):
    bench.push(1500)
    bench.reopen()

    assert (bench.store.first_offset, bench.store.next_offset) == (0, 1500)
    bench.push(1500)
    assert bench.read_all() == list(range(3000))
    bench.reopen()
    assert bench.read_all() == list(range(3000))


def test_offsets_go_on_after_a_kill(bench):
    bench.push(1500)
    bench.crash()

    assert bench.report.scanned > 0
    bench.push(1)
    assert bench.read_all() == list(range(1501))


def test_purge_keeps_offsets_over_restarts(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(2000)
    cursor = bench.cursor(5)

    assert bench.store.purge() == 2000
    assert bench.store.purge() == 0
    assert bench.read(cursor) == []
    bench.sync()
    for restart in (bench.reopen, bench.crash, bench.reopen):
        restart()
        assert (bench.store.first_offset, bench.store.next_offset, bench.store.ready_count) == (2000, 2000, 0)
    bench.push(3)
    assert bench.read_all() == [2000, 2001, 2002]
    bench.sync()
    assert len(bench.files_there()) == 1


def test_restarts_without_messages_leave_no_files_behind(bench):
    for _ in range(3):
        bench.reopen()
    assert bench.files_there() == []
    bench.push(1)
    for _ in range(3):
        bench.reopen()
    assert len(bench.files_there()) == 1


def test_segments_that_nobody_reads_are_closed(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    cursor = bench.cursor()
    bench.push(3000)
    bench.sync()
    segments = [bench.store.find(part["first_offset"]) for part in bench.store.describe()]

    bench.read(cursor, 1)
    assert [segment.is_open for segment in segments] == [True] + [False] * (len(segments) - 2) + [True]
    bench.read(cursor)
    assert [segment.is_open for segment in segments] == [False] * (len(segments) - 1) + [True]


def test_sealed_segments_need_no_scan(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(3000)
    bench.sync()
    bench.crash()

    assert bench.report.scanned == 1
    assert bench.read_all() == list(range(3000))


@pytest.mark.parametrize("wanted, offset", [
    (0, 0), (1, 1), (1400, 1400), (2999, 2999), (3000, 3000), (1 << 40, 3000)
])
@pytest.mark.parametrize("restart", [False, True])
def test_offset_for_a_timestamp_is_the_first_message_at_or_after_it(bench, wanted, offset, restart):
    bench.push(3000)
    if restart:
        bench.reopen()
    cursor = bench.cursor(bench.store.offset_for_timestamp(bench.epoch_ms + wanted))

    assert cursor.skip_before(bench.epoch_ms + wanted) == offset
    assert bench.read(cursor, 1) == ([offset] if offset < 3000 else [])


def test_describe_tells_what_each_file_holds(bench):
    bench.push(2000)

    parts = bench.store.describe()

    assert [part["sealed"] for part in parts] == [True, False]
    assert sum(part["count"] for part in parts) == 2000
    assert parts[0]["next_offset"] == parts[1]["first_offset"] == parts[0]["count"]
    assert parts[0]["bytes"] <= SEGMENT_BYTES and os.path.getsize(parts[0]["file"]) == SEGMENT_BYTES
    assert (parts[0]["first_timestamp_ms"], parts[1]["last_timestamp_ms"]) == (
        bench.epoch_ms, bench.epoch_ms + 1999
    )


@pytest.mark.parametrize("at", ["header", "body"])
def test_damaged_record_costs_one_record_and_its_offset_is_skipped(bench, at):
    bench.push(10)
    bench.reopen()
    part = bench.store.describe()[0]
    size = (part["bytes"] - 128) // 10
    with open(part["file"], "r+b") as file:
        position = 128 + 4 * size + (6 if at == "header" else 10 + 2 + 2)
        file.seek(position)
        octet = file.read(1)
        file.seek(position)
        file.write(bytes((octet[0] ^ 0x40,)))

    assert bench.read_all() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert bench.read_all(4) == [5, 6, 7, 8, 9]
    assert [count for _, _, _, count in bench.damaged] == [1]  # said once, however many readers meet it
    bench.push(1)
    assert bench.read_all(9) == [9, 10]


HIT = {
    "the last": range(2999, 3000), "the last three": range(2997, 3000),
    "all of the last segment": range(2972, 3000), "all": range(3000),
    "some in the middle": range(1476, 1496), "every other": range(0, 3000, 2), "the first": range(1),
}


@pytest.mark.parametrize("place", ["header", "body"])
@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("hit", HIT.values(), ids=list(HIT))
def test_reader_that_has_passed_all_damage_stands_at_the_end(bench, hit, ending, place):
    """Who is behind is asked again and again: a reader that stands before damage at the end must not count
    as behind once it is past.
    """
    bench.push(3000)
    getattr(bench, {"stop": "reopen", "kill": "crash"}[ending])()
    bench.damage(hit, place)
    if ending == "kill":
        bench.crash()
    sound = [offset for offset in range(3000) if offset not in hit]
    cursors = [bench.cursor(offset) for offset in (0, 5, 1170, 2350, 2998, 2999, 3000)]

    assert bench.store.next_offset == 3000
    for cursor in cursors:
        start = cursor.offset
        assert bench.read(cursor) == [offset for offset in sound if offset >= start]
        assert cursor.offset == bench.store.next_offset
    bench.push(2)
    for cursor in cursors:
        assert bench.read(cursor) == [3000, 3001]


@pytest.mark.parametrize(
    "start, expected",
    [
        (StreamStart(FIRST), 0), (StreamStart(LAST), None), (StreamStart(NEXT), None),
        (StreamStart(NUMBER, 0), 0), (StreamStart(NUMBER, 20), 50),
        (StreamStart(NUMBER, 50), 50), (StreamStart(NUMBER, 95), None), (StreamStart(NUMBER, 100), None),
        (StreamStart(NEWEST, 3), None),
        (StreamStart(NEWEST, 60), 50), (StreamStart(SINCE, StreamBench.epoch_ms + 20), 50),
        (StreamStart(SINCE, StreamBench.epoch_ms + 95), None),
    ],
    ids=repr,
)
def test_start_that_points_into_damage_is_the_next_sound_message(bench, start, expected):
    bench.push(100)
    bench.reopen()
    bench.damage([*range(20, 50), *range(90, 100)])
    cursor = bench.cursor()

    start.move(cursor, bench.epoch_ms + 100)

    assert bench.read(cursor, 1) == ([] if expected is None else [expected])
    assert expected is not None or cursor.offset == bench.store.next_offset
    bench.push(1)
    bench.read(cursor)
    assert cursor.offset == bench.store.next_offset == 101


def test_start_behind_the_end_is_the_next_message_that_comes(bench):
    bench.push(100)
    cursor = bench.cursor()

    StreamStart(NUMBER, 130).move(cursor, 0)
    bench.push(50)

    assert bench.read(cursor) == list(range(100, 150))


def test_offset_found_by_time_counts_the_damaged_records_before_it(bench):
    bench.push(100)
    bench.reopen()
    bench.damage(range(20, 50))

    assert [bench.cursor().skip_before(bench.epoch_ms + ms) for ms in (10, 30, 60, 100)] == [10, 50, 60, 100]


def test_damaged_records_in_a_row_are_said_and_kept_together(bench):
    bench.push(1000)
    bench.reopen()
    bench.damage(range(100, 900))

    assert len(bench.read_all()) == 200

    (_, start, end, count), = bench.damaged
    copy, = (bench.folder / "stream").glob("damaged.*")
    assert count == 800 and copy.stat().st_size == end - start


def test_much_damage_is_stepped_over_with_pauses_for_others(tmp_path):
    bench = StreamBench(tmp_path, segment_bytes=8 << 20)
    bench.push(1)
    bench.append(60, b"y" * 100_000)
    bench.reopen()
    bench.damage(range(61))
    cursor, message, pauses = bench.cursor(), Message(), 0

    while cursor.offset < bench.store.next_offset:
        assert not cursor.peek(message)
        pauses += 1
        assert cursor.forget_skipped() > 0

    assert pauses == 5  # of 6 MB


def test_offsets_of_flushed_records_at_a_damaged_end_are_not_given_again(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(100)
    bench.sync()
    bench.committer.kill()
    bench.damage(range(90, 100), "header")
    bench.start()

    bench.push(1, b"another")

    assert bench.store.next_offset > 100


def test_stream_file_that_was_cut_short_is_said_and_its_offsets_are_not_given_again(bench, caplog):
    bench.push(100)
    bench.store.close()
    bench.committer.stop()
    path, = (bench.folder / "stream").glob("msgs.*")
    os.truncate(path, 4096)

    bench.start()

    assert "cut short" in caplog.text and bench.store.next_offset == 100
    assert bench.read_all() == list(range(len(bench.read_all())))


@pytest.mark.parametrize("ending", ["reopen", "crash"])
def test_damage_in_a_stream_is_said_once_whatever_restarts_follow(tmp_path, ending):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(3000)
    bench.sync()
    getattr(bench, ending)()
    bench.committer.kill()
    bench.damage([5, 6, 7, 1300, 2999])
    bench.start()

    for _ in range(3):
        assert len(bench.read_all()) == 2995
        getattr(bench, ending)()

    assert sorted(count for *_, count in bench.damaged) == [1, 1, 3]
    while bench.store.oldest() is not None:
        bench.store.drop_oldest()
    bench.sync()
    getattr(bench, ending)()
    last = int(bench.files_there()[-1].split(".")[1])
    assert {path.name.split(".")[1] for path in (bench.folder / "stream").glob("known.*")} <= {f"{last:010d}"}
    bench.store.close()
    bench.committer.stop()


def test_damage_in_more_places_than_anybody_reads_is_said_in_one_line(bench, caplog):
    bench.push(1000)
    bench.reopen()
    bench.damage(range(0, 1000, 3))

    assert len(bench.read_all()) == 666

    assert len(bench.damaged) == KEPT_COPIES and caplog.text.count("more than 100 places") == 1
    assert len(list((bench.folder / "stream").glob("damaged.*"))) == KEPT_COPIES
    assert bench.pool.damage.records == 334


def test_message_larger_than_a_segment_gets_one_that_fits(bench):
    bench.push(1)
    bench.push(1, body=b"1" + b" " * 200_000)
    bench.push(1)

    assert bench.read_all() == [0, 1, 2]
    assert [part["count"] for part in bench.store.describe()] == [1, 2]


def test_closed_store_takes_nothing(bench):
    bench.push(1)
    bench.store.close()

    with pytest.raises(StoreClosed):
        bench.push(5000)


def test_message_larger_than_any_segment_is_refused(bench):
    with pytest.raises(StoreError):
        bench.store.purge()
        bench.push(1, body=bytes(1 << 28))


# batches that go by way of the stage

class Writes(Files):
    """Notes how much each call writes; fails while ``error`` is set."""

    def __init__(self):
        super().__init__()
        self.sizes = []
        self.error = None

    def write(self, file, start, octets):
        if self.error is not None:
            raise self.error
        self.sizes.append(len(octets))
        super().write(file, start, octets)


@pytest.fixture
def writes():
    return Writes()


def busy(folder, writes, **options):
    """A stream whose next batch goes by way of the stage: a hundred messages are there."""
    bench = StreamBench(folder, writes, **options)
    bench.push(100)
    assert writes.sizes == []
    return bench


def test_batches_after_a_large_one_are_written_with_few_calls(tmp_path, writes):
    bench = busy(tmp_path, writes)
    for count in (2000, 1500, 100, 1, 1, 50):
        bench.push(count)

    # over the ends of segments; the first of one is alone after a batch of one
    assert len(writes.sizes) <= 14 and sum(writes.sizes) == 44 * (2000 + 1500 + 100 + 1)
    assert bench.read_all() == list(range(3752))
    bench.reopen()
    assert bench.read_all() == list(range(3752)) and not bench.damaged


def test_small_batches_are_written_through_the_mapping(tmp_path, writes):
    bench = StreamBench(tmp_path, writes)
    for _ in range(100):
        bench.push(30)

    assert writes.sizes == [] and bench.read_all() == list(range(3000))


def test_reader_that_begins_within_a_batch_finds_its_place(tmp_path, writes):
    bench = busy(tmp_path, writes)
    early = bench.cursor(0)
    bench.append(20)

    assert bench.read(early)[-1] in (99, 119)  # the batch is not over
    behind, within = bench.cursor(120), bench.cursor(110)
    assert bench.read(behind) == [] and bench.read(within) == list(range(110, 120))
    bench.push(5)
    assert bench.read(behind) == bench.read(within) == list(range(120, 125))
    assert bench.store.describe()[-1]["last_timestamp_ms"] == bench.epoch_ms + 124


def test_time_within_a_batch_is_found(tmp_path, writes):
    bench = busy(tmp_path, writes)
    bench.append(20)

    assert bench.store.describe()[-1]["last_timestamp_ms"] == bench.epoch_ms + 119


def test_one_stream_has_the_stage_and_the_other_writes_through_its_mapping(tmp_path, writes):
    bench = busy(tmp_path, writes)
    other, _ = open_stream_store(
        tmp_path / "other", writes, bench.pool, bench.committer, INCARNATION, SEGMENT_BYTES, bench
    )
    stores = bench.store, other
    for bench.store in stores[::-1]:
        bench.push(100 - bench.store.next_offset)
    for number in range(1000):
        bench.store = stores[number % 2]
        bench.append(3)
    for bench.store in stores:
        bench.store.write_out()

    for bench.store in stores:
        assert bench.read_all() == list(range(1600))
    assert sum(writes.sizes) == 44 * 1500


def test_large_message_in_a_batch_keeps_its_place(tmp_path, writes):
    bench = busy(tmp_path, writes, segment_bytes=1 << 20)
    bench.append(10)
    bench.append(1, body=b"110".rjust(100_000))
    bench.push(10)

    assert bench.read_all() == list(range(121))
    bench.reopen()
    assert bench.read_all() == list(range(121))


@pytest.mark.parametrize("ending", ["write_out", "sync", "full", "roll", "close"])
def test_batch_that_cannot_be_written_fences_the_stream_and_confirms_nothing(tmp_path, writes, ending):
    bench = busy(tmp_path, writes, enabled=True, segment_bytes=1 << 20 if ending == "full" else SEGMENT_BYTES)
    bench.sync()
    writes.error = OSError(errno.EIO, "no")
    answers = []
    bench.append(10)
    bench.committer.after_sync(answers.append)

    if ending == "write_out":
        bench.store.write_out()
    elif ending in ("full", "roll"):
        with pytest.raises(StoreClosed):
            bench.append(5000)
    elif ending == "close":
        bench.store.close()
    with pytest.raises(StoreError):
        bench.committer.wait()

    assert [type(answer) for answer in answers] == [StoreClosed]
    assert bench.fenced == [writes.error] and bench.pool.stage.user is None
    with pytest.raises(StoreClosed):
        bench.push()
    writes.error = None
    bench.committer.stop()
    bench.start()
    assert bench.read_all() == list(range(100))
    bench.store.close()
    bench.committer.stop()


def test_stream_that_is_deleted_within_a_batch_leaves_the_stage_to_others(tmp_path, writes):
    bench = busy(tmp_path, writes)
    bench.append(10)
    bench.store.delete_files()

    assert bench.pool.stage.user is None


def test_deleted_stream_leaves_nothing(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(3000)
    bench.store.drop_oldest()
    bench.store.delete_files()
    bench.committer.stop()

    assert not (tmp_path / "stream").exists()


def test_synced_offset_is_what_a_flush_has_covered(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(10)
    assert bench.store.synced_offset == 0
    bench.sync()
    assert bench.store.synced_offset == 10
    bench.push(1, persistent=False)
    bench.sync()
    assert bench.store.synced_offset == 11
    bench.reopen()
    assert bench.store.synced_offset == 11
