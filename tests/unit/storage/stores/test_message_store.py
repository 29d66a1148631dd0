"""Message store: the verbs of a queue, segments coming and going."""
import os
from types import SimpleNamespace

import pytest

from gomq_py.content.gathered import Gathered
from gomq_py.storage.disk.files import Files
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format import record
from tests.support.faulty_files import FaultyFiles
from tests.support.stores import Shown, StoreBench


@pytest.fixture
def bench(tmp_path):
    return StoreBench(tmp_path)


def names(folder):
    return sorted(p.name for p in (folder / "queue").glob("*")) if (folder / "queue").exists() else []


def test_messages_come_out_in_the_order_they_went_in(bench):
    bodies = [b"%d" % n for n in range(1000)]
    for body in bodies:
        bench.push(body)

    assert [shown.body for shown in bench.drain()] == bodies


def test_peek_shows_without_taking(bench):
    bench.push(b"one")

    assert bench.peek() == bench.peek() == Shown(b"one")
    assert (bench.store.ready_count, bench.store.unacked_count) == (1, 0)


def test_an_empty_store_has_nothing_and_no_files(bench, tmp_path):
    assert bench.peek() is None
    assert names(tmp_path) == []


def test_counts_and_bytes_follow_a_message_through_its_life(bench):
    store = bench.store
    bench.push(b"12345")
    bench.push(b"678")
    assert (store.ready_count, store.ready_bytes, store.unacked_count, store.unacked_bytes) == (2, 8, 0, 0)

    location, _ = bench.shift()
    assert (store.ready_count, store.ready_bytes, store.unacked_count, store.unacked_bytes) == (1, 3, 1, 5)

    store.delete(location)
    assert (store.ready_count, store.ready_bytes, store.unacked_count, store.unacked_bytes) == (1, 3, 0, 0)


def test_every_part_of_a_message_comes_back(bench):
    bench.push(
        b"body", exchange=b"amq.topic", routing_key=b"a.b", properties=b"\x10\x00\x02", priority=7,
        expires_at_ms=99,
    )
    bench.peek()
    message = bench.message

    assert message.get_exchange() == b"amq.topic"
    assert message.get_routing_key() == b"a.b"
    assert message.get_properties() == b"\x10\x00\x02"
    assert message.get_body() == b"body"
    fields = message.describe()
    assert (fields["priority"], fields["expires_at_ms"], fields["timestamp_ms"], fields["persistent"]) == (
        7, 99, 1700000000000, True
    )


def test_requeued_messages_go_again_in_their_old_places(bench):
    for n in range(5):
        bench.push(b"%d" % n)
    locations = [bench.shift()[0] for _ in range(4)]
    for location in (locations[3], locations[0], locations[2]):
        bench.store.requeue(location)

    assert bench.drain() == [Shown(b"0", True, 1), Shown(b"2", True, 1), Shown(b"3", True, 1), Shown(b"4")]


def test_each_requeue_counts(bench):
    bench.push(b"poison")
    for count in range(4):
        location, shown = bench.shift()
        assert shown == Shown(b"poison", count > 0, count)
        bench.store.requeue(location)


def test_shift_takes_what_peek_showed_even_if_an_older_message_came_back_between(bench):
    for n in range(3):
        bench.push(b"%d" % n)
    first, second = bench.shift()[0], bench.shift()[0]
    bench.store.requeue(second)
    assert bench.peek().body == b"1"

    bench.store.requeue(first)
    bench.store.shift()

    assert [shown.body for shown in bench.drain()] == [b"0", b"2"]


def test_an_unacked_message_can_be_read_again(bench):
    bench.push(b"one")
    location, _ = bench.shift()
    bench.push(b"two")

    assert bench.store.read(location, bench.message)
    assert bench.message.get_body() == b"one"


def test_segments_roll_and_vanish_when_all_of_one_is_acked(bench, tmp_path):
    body = bytes(10000)
    for _ in range(20):
        bench.push(body)
    assert names(tmp_path) == ["acks.0000000001", "acks.0000000002", "msgs.0000000001", "msgs.0000000002"]

    assert len(bench.drain()) == 20
    bench.finish_aside()

    assert names(tmp_path) == ["acks.0000000002", "msgs.0000000002"]


@pytest.mark.parametrize("durable", [True, False])
def test_the_next_segment_is_ready_before_the_roll(tmp_path, durable):
    """Half of the write segment is full: the next one is made aside.

    The roll asks the system for nothing; names are changed by a thread after it.
    """
    files = FaultyFiles()
    bench = StoreBench(tmp_path, files, durable=durable)
    (tmp_path / "queue").mkdir(exist_ok=True)
    bench.push(bytes(30_000))
    bench.store.write_out()
    assert not bench.pool._expected
    created = len(files.calls)
    bench.push(bytes(10_000))
    bench.store.write_out()
    bench.committer.stop()
    assert {call for call, _ in files.calls[created:]} == {"make" if durable else "make_unnamed"}

    rolled = len(files.calls)
    bench.push(bytes(60_000))
    assert files.calls[rolled:] == []

    bench.store.write_out()
    bench.finish_aside()
    assert [call for call, _ in files.calls[rolled:]] == ["rename"] * 2 * durable
    assert [shown.body for shown in bench.drain()] == [bytes(30_000), bytes(10_000), bytes(60_000)]


@pytest.mark.parametrize("end", ["close", "delete_files", "forget_files"])
def test_a_store_that_ends_expects_no_more_segments(bench, end):
    bench.push(bytes(50_000))
    bench.store.write_out()

    getattr(bench.store, end)()
    bench.committer.stop()
    bench.pool.close()
    bench.committer.stop()

    assert not bench.pool._expected and not os.listdir(bench.pool.folder)


def test_a_segment_with_an_unacked_message_stays(bench, tmp_path):
    for _ in range(20):
        bench.push(bytes(10000))
    first, _ = bench.shift()
    bench.drain()
    assert "msgs.0000000001" in names(tmp_path)

    bench.store.delete(first)
    bench.finish_aside()

    assert "msgs.0000000001" not in names(tmp_path)


def test_a_message_larger_than_a_segment_gets_its_own(tmp_path):
    bench = StoreBench(tmp_path, segment_bytes=65536)
    bodies = [b"a", b"b" * 300000, b"c"]
    for body in bodies:
        bench.push(body)

    assert [shown.body for shown in bench.drain()] == bodies


def test_purge_forgets_what_is_ready_and_keeps_what_is_out(bench):
    for n in range(50):
        bench.push(b"%05000d" % n)
    out = [bench.shift()[0] for _ in range(3)]
    bench.store.requeue(out[1])

    assert bench.store.purge() == 48

    assert bench.peek() is None
    assert (bench.store.ready_count, bench.store.ready_bytes, bench.store.unacked_count) == (0, 0, 2)
    bench.store.requeue(out[2])
    bench.push(b"new")
    assert [shown.body[-3:] for shown in bench.drain()] == [b"002", b"new"]


def test_purge_forgets_what_came_back_with_its_segment(tmp_path):
    """Every other message is acked, the rest comes back.

    Forgetting them one by one would write an entry for each.
    """
    bench = StoreBench(tmp_path, segment_bytes=65536)
    out = [push_and_shift(bench, b"%d" % number) for number in range(3400)]
    for location in out[1::2]:
        bench.store.delete(location)
    for location in reversed(out[::2]):
        bench.store.requeue(location)
    bench.store.write_out()
    newest = names(tmp_path)[len(names(tmp_path)) // 2 - 1]
    before = entries_in(tmp_path, newest)

    assert bench.store.purge() == 1700
    bench.finish_aside()

    assert [name for name in names(tmp_path) if name.startswith("acks")] == [newest]
    assert 100 < before == entries_in(tmp_path, newest) - 2
    assert (
        bench.store.ready_count, bench.store.ready_bytes, bench.store.unacked_count, bench.store.unacked_bytes
    ) == (0, 0, 0, 0)
    bench.push(b"new")
    bench.crash()
    assert [shown.body for shown in bench.drain()] == [b"new"]


def entries_in(folder, name):
    """How many entries an acks file has."""
    octets = (folder / "queue" / name).read_bytes()
    return record.load_acks(octets, head_format.decode(octets).seed).entries


def test_purge_of_what_came_back_keeps_what_is_out(tmp_path):
    bench = StoreBench(tmp_path, segment_bytes=65536)
    out = [push_and_shift(bench, b"%d" % number) for number in range(3000)]
    kept = out[1700]
    for location in out:
        if location != kept:
            bench.store.requeue(location)
    for _ in range(5):
        bench.shift()  # once more, and out
    bench.push(b"last")

    assert bench.store.purge() == 3000 - 1 - 5 + 1

    assert (bench.store.ready_count, bench.store.unacked_count) == (0, 6)
    for location in (kept, *out[:5]):
        bench.store.requeue(location)
    shown = bench.drain()
    assert [(one.body, one.delivery_count) for one in shown] == [
        *((b"%d" % number, 2) for number in range(5)), (b"1700", 1)
    ]


def test_a_queue_with_one_message_can_be_purged_any_number_of_times(bench):
    """A run takes two entries of the acks file, which has room for one for each message."""
    for _ in range(3000):
        bench.push(b"")

        assert bench.store.purge() == 1


def test_purged_messages_behind_a_segment_of_picked_ones_stay_away_after_a_crash(tmp_path):
    """All but the oldest message of the first segment were picked and deleted: its files are given back, and
    the next segment is purged from its start.
    """
    bench = StoreBench(tmp_path, segment_bytes=65536)
    out = [bench.push(b"%05000d" % number) for number in range(16)]
    picked = [
        location for location in out[1:] if record.number_of(location) == record.number_of(out[0])
    ]
    for location in picked:
        assert bench.store.pick(location)
        bench.store.delete(location)

    assert bench.store.purge() == 16 - len(picked)

    bench.crash()
    assert bench.drain() == []


def test_purged_messages_behind_two_segments_of_picked_ones_stay_away_after_a_crash(tmp_path):
    bench = StoreBench(tmp_path, segment_bytes=65536, in_threads=False)
    out = [bench.push(b"%060000d" % number) for number in range(3)]  # a segment each
    for location in out[:2]:
        assert bench.store.pick(location)

    assert bench.store.purge() == 1

    for location in out[:2]:
        bench.store.delete(location)
    bench.store.write_out()
    bench.crash()
    assert bench.drain() == []


def push_and_shift(bench, body):
    bench.push(body)
    return bench.shift()[0]


def test_a_transient_store_leaves_no_name_on_the_disk(tmp_path):
    (tmp_path / "queue").mkdir()
    bench = StoreBench(tmp_path, durable=False)
    for n in range(30):
        bench.push(b"%09000d" % n)

    assert names(tmp_path) == []
    assert len(bench.drain()) == 30


def test_deleted_files_are_gone(bench, tmp_path):
    for _ in range(20):
        bench.push(bytes(10000))
    bench.store.delete_files()

    assert not (tmp_path / "queue").exists()
    with pytest.raises(StoreError):
        bench.push(b"x")


class Told:
    """Hears of changes of files. ``written``: the file name of each range, in order."""

    def __init__(self):
        self.written = []

    def appended(self, file_id, file, start, end):
        self.written.append(os.path.basename(file.path))

    overwritten = appended

    def __getattr__(self, name):
        return lambda *_: None


def test_message_that_is_written_anew_is_told_of_before_the_old_one_is_deleted(tmp_path):
    """Or whoever follows, and takes over between the two, has neither."""
    told = Told()
    bench = StoreBench(tmp_path, files=Files((told,)), segment_bytes=65536)
    bench.push(b"old")
    location, _ = bench.shift()
    while len(names(tmp_path)) < 3:  # the old one's segment has an acks file, too
        bench.push(bytes(10000))
        bench.store.write_out()
    told.written.clear()

    bench.push(b"anew")
    bench.store.delete(location)
    bench.store.write_out()

    assert told.written == ["msgs.0000000002", "acks.0000000001"]
    bench.close()


def test_a_location_that_was_never_handed_out_is_refused(bench):
    bench.push(b"one")
    location, _ = bench.shift()

    for wrong in (location + 8, location + 4, location + (1 << 28), location & ~0xFFFFFFF):
        with pytest.raises(StoreError):
            bench.store.delete(wrong)


# large bodies, which are written with a call

LARGE = bytes(range(256)) * 1024


def gathered(body=LARGE):
    made = Gathered(SimpleNamespace(octets=memoryview(bytearray(600 + len(body)))), 600, len(body))
    made.add(body)
    return made


def test_a_large_body_is_written_as_it_would_be_copied(tmp_path):
    files = [FaultyFiles(), FaultyFiles()]
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = (
        StoreBench(tmp_path / name, files=each) for name, each in zip(("one", "other"), files))
    for bench, bodies in ((one, (b"a", gathered(), b"b", gathered())), (other, (b"a", LARGE, b"b", LARGE))):
        for body in bodies:
            bench.push(body, properties=b"\x10\x00\x02")

    assert [[call for call, _ in each.calls].count("put") for each in files] == [2, 0]
    for bench in (one, other):
        bench.reopen()
        assert [shown.body for shown in bench.drain()] == [b"a", LARGE, b"b", LARGE] and not bench.damaged


def test_a_large_body_comes_back_after_a_crash(tmp_path):
    bench = StoreBench(tmp_path, enabled=True)
    bench.push(gathered())
    bench.store.write_out()
    bench.crash()

    assert [shown.body for shown in bench.drain()] == [LARGE] and not bench.damaged


@pytest.mark.parametrize("how", ["fail", "little"])
def test_a_disk_that_does_not_take_a_large_body_fences_the_store_and_one_that_takes_it_slowly_does_not(
    tmp_path, how,
):
    files = FaultyFiles(how=how)
    bench = StoreBench(tmp_path, files=files)
    bench.push(gathered())
    files.fail_at = len(files.calls) + 1

    if how == "little":
        bench.push(gathered())
        assert [shown.body for shown in bench.drain()] == [LARGE] * 2
    else:
        with pytest.raises(StoreError):
            bench.push(gathered())
        assert bench.fenced


# whose file is never used for others

@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("descriptors", [0, 128])
def test_message_with_a_segment_of_its_own_has_a_file_to_be_read_from(tmp_path, durable, descriptors):
    files = Files()
    files.mapped_descriptors = descriptors
    (tmp_path / "queue").mkdir()
    bench = StoreBench(tmp_path, files=files, segment_bytes=65536, durable=durable)
    for body in (b"a", LARGE, b"b"):
        bench.push(body)

    found = []
    for _ in range(3):
        assert bench.store.peek(bench.message)
        found.append(bench.store.body_file(bench.message))
        bench.store.shift()

    assert found[0] is None
    file, fd = found[1].file, found[1].fd
    assert LARGE in os.pread(fd, file.size, 0)
    for reading in found[1:]:
        if reading is not None:
            reading.close()
    assert not file.is_retained and file.fd == (fd if descriptors or not durable else -1)


def test_message_that_was_copied_since_it_was_shown_is_not_read_from_its_file(tmp_path):
    """It lies elsewhere in its copy, with properties of another length."""
    (tmp_path / "queue").mkdir()
    bench = StoreBench(tmp_path, segment_bytes=65536)
    bench.push(LARGE)
    assert bench.store.peek(bench.message)

    bench.message.own()

    assert bench.store.body_file(bench.message) is None
