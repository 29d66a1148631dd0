"""Recovery: what a store is after a restart, however the last run ended,
and what octets from anywhere may do to it.
"""
import errno
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gomq_py.storage.disk.data_dir import KILLED, POWER_LOST
from gomq_py.storage.disk.files import Files
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import head as head_format, record
from tests.support.stores import Shown, StoreBench
from tests.support.unflushed import Unflushed

# Of what a bench pushes with five octets, and when it came.
SIZE, CAME_MS = record.size_of(3, 2, 5), 1700000000000


def bench_with(folder, count=20, **options):
    """A bench with numbered messages in its store."""
    bench = StoreBench(folder, **options)
    for number in range(count):
        bench.push(b"%04d" % number)
    bench.store.write_out()
    return bench


def numbers(bench):
    return [int(shown.body) for shown in bench.drain(ack=False)]


def names(bench):
    return sorted(os.listdir(bench.folder / "queue"))


@pytest.mark.parametrize("restart", [StoreBench.reopen, StoreBench.crash])
def test_messages_are_there_again_in_order(tmp_path, restart):
    bench = bench_with(tmp_path)

    restart(bench)

    assert bench.store.ready_count == 20
    assert numbers(bench) == list(range(20))


@pytest.mark.parametrize("restart", [StoreBench.reopen, StoreBench.crash])
def test_what_was_acked_is_gone_and_what_was_out_is_redelivered(tmp_path, restart):
    bench = bench_with(tmp_path, 6)
    locations = [bench.shift()[0] for _ in range(4)]
    bench.store.delete(locations[0])
    bench.store.delete(locations[2])
    bench.store.write_out()

    restart(bench)

    assert (bench.store.ready_count, bench.store.ready_bytes) == (4, 16)
    assert bench.drain() == [Shown(b"0001", True, 1), Shown(b"0003", True, 1), Shown(b"0004"), Shown(b"0005")]


@pytest.mark.parametrize("restart", [StoreBench.reopen, StoreBench.crash])
def test_failed_deliveries_are_counted_over_restarts(tmp_path, restart):
    bench = bench_with(tmp_path, 1)
    for count in range(1, 5):
        location, _ = bench.shift()
        bench.store.write_out()
        restart(bench)
        assert bench.peek() == Shown(b"0000", True, count)


@pytest.mark.parametrize("restart", [StoreBench.reopen, StoreBench.crash])
def test_deliveries_without_a_failure_are_counted_over_restarts(tmp_path, restart):
    """What is given back after each other delivery, over five runs; each run loses its last."""
    bench = bench_with(tmp_path, 1)
    for run in range(1, 6):
        location, shown = bench.shift()
        assert (shown.delivery_count, bench.store.excuse(location, 0)) == (2 * (run - 1), run - 1)
        assert bench.store.excuse(location, 1) == run
        bench.store.requeue(location)
        assert bench.shift()[1].delivery_count == 2 * run - 1
        bench.store.write_out()
        restart(bench)


def test_deliveries_without_a_failure_are_forgotten_with_their_message(tmp_path):
    bench = bench_with(tmp_path, 2)
    for _ in range(2):
        location, _ = bench.shift()
        bench.store.excuse(location, 1)
        bench.store.requeue(location)
        bench.store.delete(bench.shift()[0])
    assert (bench.store.requeued.counts.count, bench.store.requeued.excused.count) == (0, 0)


def test_a_clean_stop_leaves_seals_and_nothing_to_scan(tmp_path):
    bench = bench_with(tmp_path, 200, segment_bytes=65536)
    for _ in range(30):
        bench.push(bytes(5000))

    bench.reopen()

    assert bench.report.scanned == 0
    assert bench.store.ready_count == 230


def test_a_kill_is_scanned_once(tmp_path):
    bench = bench_with(tmp_path)

    bench.crash()
    assert bench.report.scanned == 1
    bench.crash()

    assert bench.report.scanned == 0
    assert numbers(bench) == list(range(20))


def test_a_restart_writes_to_a_new_segment(tmp_path):
    bench = bench_with(tmp_path)

    bench.crash()
    bench.push(b"0020")

    assert names(bench) == ["acks.0000000001", "acks.0000000002", "msgs.0000000001", "msgs.0000000002"]
    assert numbers(bench) == list(range(21))


def test_numbers_go_on_behind_the_highest_that_was_found(tmp_path):
    bench = bench_with(tmp_path)
    bench.store.purge()

    bench.crash()
    bench.push(b"0020")

    assert "msgs.0000000002" in names(bench)


def test_an_emptied_store_has_no_segments_after_a_restart(tmp_path):
    bench = bench_with(tmp_path)
    bench.drain()

    bench.reopen()
    bench.finish_aside()

    assert names(bench) == []
    assert bench.store.ready_count == 0


def test_a_missing_acks_file_is_made_anew(tmp_path):
    bench = bench_with(tmp_path)
    os.unlink(tmp_path / "queue" / "acks.0000000001")

    bench.crash()

    assert numbers(bench) == list(range(20))
    assert "acks.0000000001" in names(bench)


def test_acks_without_messages_are_removed(tmp_path):
    bench = bench_with(tmp_path)
    os.unlink(tmp_path / "queue" / "msgs.0000000001")

    bench.crash()
    bench.finish_aside()

    assert names(bench) == []
    assert bench.report.removed == (str(tmp_path / "queue" / "acks.0000000001"),)


def test_a_recycled_file_whose_new_head_never_reached_the_disk_is_empty(tmp_path):
    """The name says segment 2 of this queue; the octets are segment 1, with all its records."""
    bench = bench_with(tmp_path)
    for kind in ("msgs", "acks"):
        shutil.copy(tmp_path / "queue" / f"{kind}.0000000001", tmp_path / "queue" / f"{kind}.0000000002")

    bench.crash()

    assert numbers(bench) == list(range(20))
    assert "msgs.0000000002" not in names(bench)


def test_another_queues_segment_is_not_read(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    bench = bench_with(tmp_path / "a")
    other = bench_with(tmp_path / "b")
    octets = bytearray((tmp_path / "b" / "queue" / "msgs.0000000001").read_bytes())
    head = head_format.decode(octets)._replace(number=2, incarnation=bytes(16))
    octets[:64] = head.encode()
    (tmp_path / "a" / "queue" / "msgs.0000000002").write_bytes(octets)

    bench.crash()

    assert numbers(bench) == list(range(20))
    assert other.store.ready_count == 20


@pytest.mark.parametrize("kind", ["msgs", "acks"])
def test_an_unreadable_head_is_made_from_its_twin(tmp_path, kind):
    bench = bench_with(tmp_path)
    for _ in range(3):
        bench.store.delete(bench.shift()[0])
    bench.store.write_out()
    path = tmp_path / "queue" / f"{kind}.0000000001"
    path.write_bytes(bytes(64) + path.read_bytes()[64:])

    bench.crash()

    assert numbers(bench) == list(range(3, 20))
    assert head_format.decode(path.read_bytes()) is not None


def test_a_pair_with_two_unreadable_heads_is_kept_under_another_name(tmp_path):
    bench = bench_with(tmp_path)
    for kind in ("msgs", "acks"):
        path = tmp_path / "queue" / f"{kind}.0000000001"
        path.write_bytes(b"garbage!" * 8 + path.read_bytes()[64:])

    bench.crash()

    assert bench.store.ready_count == 0
    assert names(bench) == ["damaged.acks.0000000001", "damaged.msgs.0000000001"]


def test_a_damaged_record_is_set_aside_and_costs_itself_alone(tmp_path):
    bench = bench_with(tmp_path, enabled=True)
    bench.reopen()
    path = tmp_path / "queue" / "msgs.0000000001"
    octets = bytearray(path.read_bytes())
    at = octets.rindex(b"0007")
    octets[at] ^= 1
    path.write_bytes(octets)

    assert numbers(bench) == [*range(7), *range(8, 20)]

    assert len(bench.damaged) == 1
    damaged_path, start, end, count = bench.damaged[0]
    assert damaged_path == str(path) and start < at < end and count == 1
    assert (tmp_path / "queue" / f"damaged.0000000001.{start}").read_bytes() == bytes(octets[start:end])
    assert (bench.store.ready_count, bench.store.unacked_count) == (0, 19)
    assert bench.fenced == []


def test_damage_is_reported_once(tmp_path):
    bench = bench_with(tmp_path, enabled=True)
    bench.reopen()
    path = tmp_path / "queue" / "msgs.0000000001"
    octets = bytearray(path.read_bytes())
    octets[octets.rindex(b"0007")] ^= 1
    path.write_bytes(octets)
    numbers(bench)

    bench.reopen()

    assert numbers(bench) == [*range(7), *range(8, 20)]
    assert len(bench.damaged) == 1


def test_a_damaged_header_costs_its_record_alone(tmp_path):
    bench = bench_with(tmp_path, enabled=True)
    bench.reopen()
    path = tmp_path / "queue" / "msgs.0000000001"
    octets = bytearray(path.read_bytes())
    octets[128 + 56 * 3 + 12] ^= 0x80  # a body length, so that the record seems to be 128 octets longer
    path.write_bytes(octets)

    assert numbers(bench) == [0, 1, 2, *range(4, 20)]
    assert [count for _, _, _, count in bench.damaged] == [1]
    assert bench.store.ready_count == 0


def test_a_torn_tail_is_not_damage(tmp_path):
    bench = bench_with(tmp_path)
    path = tmp_path / "queue" / "msgs.0000000001"
    octets = bytearray(path.read_bytes())
    octets[octets.rindex(b"0019") - 20:] = bytes(len(octets) - octets.rindex(b"0019") + 20)
    path.write_bytes(octets)

    bench.crash()

    assert numbers(bench) == list(range(19))
    assert bench.damaged == [] and bench.report.lost == 0


def test_pages_that_a_power_cut_kept_from_the_disk_are_not_damage(tmp_path):
    bench = bench_with(tmp_path, 500)
    path = tmp_path / "queue" / "msgs.0000000001"
    octets = bytearray(path.read_bytes())
    octets[8192:12288] = bytes(4096)
    path.write_bytes(octets)

    bench.crash()
    found = numbers(bench)

    assert found == sorted(found) and 420 < len(found) < 430
    assert bench.damaged == [] and bench.report.lost == 0


def test_a_lost_page_below_what_was_flushed_is_said_to_be_the_disks_fault(tmp_path):
    bench = bench_with(tmp_path, 500, enabled=True)
    bench.committer.wait()
    path = tmp_path / "queue" / "msgs.0000000001"
    octets = bytearray(path.read_bytes())
    octets[8192:12288] = bytes(4096)
    path.write_bytes(octets)

    bench.crash()

    assert bench.report.lost == 500 - bench.store.ready_count
    assert len(bench.damaged) == 1


def test_a_file_that_cannot_be_read_closes_one_queue(tmp_path):
    class Broken(Files):
        def open(self, path):
            raise OSError(5, "Input/output error", path)

    bench = bench_with(tmp_path)
    bench.files = Broken()

    with pytest.raises(StoreError):
        bench.crash()


def settled(folder):
    """A killed store's folder: 30 messages of various sizes, some acked, some out, some delivered twice."""
    bench = StoreBench(folder, Unflushed())
    for number in range(30):
        bench.push(b"%04d" % number + bytes(number * 37 % 200))
    out = [bench.shift()[0] for _ in range(20)]
    for number in (0, 3, 4, 5, 6, 9, 19):
        bench.store.delete(out[number])
    for number in (1, 8, 10):
        bench.store.requeue(out[number])
    for _ in range(2):
        bench.shift()
    bench.store.write_out()
    return bench


def recovered(folder):
    """The numbers a recovery finds, twice the same."""
    found = []
    for _ in range(2):
        bench = StoreBench(folder, Unflushed())
        found.append([int(shown.body[:4]) for shown in bench.drain(ack=False)])
        assert bench.store.ready_count == 0 and bench.store.unacked_count == len(found[-1])
        assert bench.store.ready_bytes == 0
        bench.store.write_out()
        bench.committer.kill()
    assert found[0] == found[1]
    return found[0]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    settled(folder).committer.kill()
    return folder


GONE = {0, 3, 4, 5, 6, 9, 19}


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_octets_from_anywhere_in_either_file_cost_what_they_hit(original, tmp_path_factory, data):
    """Up to five patches of random octets over both files;
    what is found is in order, once, and nothing that never was.
    """
    folder = tmp_path_factory.mktemp("patched")
    shutil.copytree(original, folder, dirs_exist_ok=True)
    hit = 0
    for kind, ends in (("msgs", 6000), ("acks", 500)):
        path = folder / "queue" / f"{kind}.0000000001"
        octets = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(0, 5))):
            at, patch = data.draw(st.integers(0, ends)), data.draw(st.binary(min_size=1, max_size=64))
            octets[at:at + len(patch)] = patch
            hit += 1
        path.write_bytes(octets)

    found = recovered(folder)

    assert found == sorted(set(found)) and set(found) <= set(range(30))
    if not hit:
        assert set(found) == set(range(30)) - GONE


@given(size=st.integers(0, 6000))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_cut_anywhere_gives_what_lies_before_the_cut(original, tmp_path_factory, size):
    folder = tmp_path_factory.mktemp("cut")
    shutil.copytree(original, folder, dirs_exist_ok=True)
    path = folder / "queue" / "msgs.0000000001"
    path.write_bytes(path.read_bytes()[:size])

    found = recovered(folder)

    expected = [number for number in range(30) if number not in GONE]
    assert found == expected[:len(found)]


class BadSector(Files):
    """From octet ``bad_from`` of a msgs file on the disk gives nothing, once it is set; ``reads`` are the
    ranges that were asked for.
    """

    def __init__(self):
        super().__init__()
        self.bad_from = None
        self.reads = []

    def read_through(self, file, start=0, end=None):
        if "msgs" in file.path:
            self.reads.append((start, end))
            if self.bad_from is not None and end > self.bad_from:
                raise OSError(errno.EIO, "Input/output error", file.path)
        super().read_through(file, start, end)


@pytest.mark.parametrize("gone", ["msgs", "acks"])
def test_file_cut_short_between_boot_and_the_first_read_costs_the_queue_and_not_the_process(tmp_path, gone):
    bench = bench_with(tmp_path)
    bench.reopen()
    os.truncate(tmp_path / "queue" / f"{gone}.0000000001", 1024)

    assert bench.peek() is None

    assert isinstance(bench.store.failure, StoreError)
    assert (
        f"{gone}.0000000001" in str(bench.fenced[0])
        and "the file has 1024 bytes, and had at least" in str(bench.fenced[0])
    )


def test_file_cut_short_while_it_is_read_costs_the_queue_and_not_the_process(tmp_path):
    bench = StoreBench(tmp_path, segment_bytes=1 << 20)
    for number in range(60):
        bench.push(b"%04d" % number + bytes(12000))
    bench.reopen()
    before = bench.shift()[1].body[:4]  # maps the first segment and reads a part of it
    location, _ = bench.shift()
    while location >> 28 & 0xFFFFFFF == 1:
        location, _ = bench.shift()
    os.truncate(tmp_path / "queue" / "msgs.0000000002", 300000)

    taken = numbers_of(bench)

    assert before == b"0000" and taken == list(range(taken[0], taken[0] + len(taken)))
    assert bench.fenced[0].errno == errno.EIO


def numbers_of(bench):
    return [int(shown.body[:4]) for shown in bench.drain(ack=False)]


@pytest.mark.parametrize("restart", [StoreBench.reopen, StoreBench.crash])
def test_bad_sector_fences_the_store_when_the_cursor_comes_to_it(tmp_path, restart):
    files = BadSector()
    bench = StoreBench(tmp_path, files, segment_bytes=2 << 20)
    for number in range(100):
        bench.push(b"%04d" % number + bytes(12000))
    bench.store.write_out()
    restart(bench)
    files.bad_from, files.reads = 600_000, []

    taken = numbers_of(bench)

    assert taken == list(range(len(taken))) and len(taken) > 20
    assert bench.fenced[0].errno == errno.EIO
    assert all(end - start <= 300_000 for start, end in files.reads), (
        "more than a window at a time holds up the hub"
    )


def test_segment_of_this_run_that_is_opened_again_is_read_through_first(tmp_path):
    files = BadSector()
    bench = StoreBench(tmp_path, files, enabled=True, segment_bytes=65536)
    for number in range(40):
        bench.push(b"%04d" % number + bytes(12000))
    bench.store.write_out()
    bench.committer.wait()
    files.bad_from = 0

    taken = numbers_of(bench)

    assert taken == list(range(len(taken))) and 0 < len(taken) < 40
    assert bench.fenced[0].errno == errno.EIO
    bench.committer.stop()


def test_sealed_file_cut_short_while_no_broker_runs_is_said_and_counted(tmp_path, caplog):
    bench = bench_with(tmp_path)
    bench.close()
    os.truncate(tmp_path / "queue" / "msgs.0000000001", 1024)

    bench.start()

    assert "cut short while no broker ran" in caplog.text and "msgs.0000000001 has 1024 bytes" in caplog.text
    kept = numbers(bench)
    assert kept == list(range(len(kept))) and 0 < len(kept) < 20
    assert bench.report.lost == 20 - len(kept)


@pytest.mark.parametrize("wrong", [
    {"records": 2_638_092, "body_bytes": 0}, {"body_bytes": 1 << 60}, {"records": 1}, {"body_bytes": 3}
])
def test_seal_whose_numbers_cannot_be_is_not_believed_though_its_checksum_holds(tmp_path, wrong):
    bench = bench_with(tmp_path)
    for _ in range(5):
        bench.store.delete(bench.shift()[0])
    bench.store.write_out()
    bench.close()
    with open(tmp_path / "queue" / "msgs.0000000001", "r+b") as file:
        octets = file.read(head_format.HEAD_BYTES)
        seed = head_format.decode(octets).seed
        file.seek(head_format.SEAL_AT)
        file.write(head_format.encode_seal(seed, head_format.decode_seal(seed, octets)._replace(**wrong)))

    bench.start()

    assert (bench.store.ready_count, bench.store.ready_bytes) == (15, 60)
    assert numbers(bench) == list(range(5, 20))
    bench.close()


def test_a_place_tells_whole_messages_and_consumed_ones_from_torn_ones(tmp_path):
    """What an identifier of QoS 2 goes by after a kill. A segment of which all was acked is gone."""
    bench = StoreBench(tmp_path)
    bench.push(b"before")
    place = bench.store.place_of(SIZE)
    bench.push(b"there")

    bench.crash()
    assert bench.store.has_record(place, 0) and bench.store.has_record(place, CAME_MS)
    assert not bench.store.has_record(place, CAME_MS + 1)
    bench.drain()
    bench.crash()
    assert bench.store.ready_count == 0 and bench.store.has_record(place, CAME_MS)
    assert not bench.store.has_record(bench.store.place_of(SIZE), 0)


@pytest.mark.parametrize("last_end, is_known", [(KILLED, True), (POWER_LOST, False)])
def test_a_segment_that_is_gone_had_been_acked_unless_the_power_was_lost(tmp_path, last_end, is_known):
    """After a loss of power the acks have to say so, which go later than the messages."""
    bench, places = StoreBench(tmp_path), []
    while not places or record.number_of(places[-1]) < 2:
        places.append(bench.store.place_of(SIZE))
        bench.push(b"there")
    bench.drain(most=len(places) - 1)
    bench.committer.kill()
    msgs, acks = (tmp_path / "queue" / f"{kind}.0000000001" for kind in ("msgs", "acks"))
    msgs.unlink()

    bench.start()
    assert all(bench.store.has_record(place, CAME_MS) for place in places)
    assert not bench.store.has_record(places[0] - 8, 0)
    bench.committer.kill()
    acks.unlink()
    bench.start()
    bench.pool.last_end = last_end

    assert {bench.store.has_record(place, CAME_MS) for place in places[:-1]} == {is_known}
    assert bench.store.has_record(places[-1], CAME_MS)


@pytest.mark.parametrize("before", [0, 1])
def test_a_torn_message_does_not_lie_in_its_place(tmp_path, before):
    bench = StoreBench(tmp_path)
    for _ in range(before):
        bench.push(b"before")
    place = bench.store.place_of(SIZE)
    bench.push(b"x" * 40000)
    segment = next(iter((tmp_path / "queue").glob("msgs.*")))
    octets = segment.read_bytes()
    at = octets.index(b"x" * 40000)
    segment.write_bytes(octets[:at + 100] + bytes(len(octets) - at - 100))

    bench.crash()

    assert not bench.store.has_record(place, 0)
    assert len(bench.drain()) == before
