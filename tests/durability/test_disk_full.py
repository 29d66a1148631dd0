"""A disk that is full when a queue needs its next segment: the message is refused, everything else goes on,
and publishing too once there is room.
"""
import errno

import pytest

from gomq_py.storage.errors import StoreFull
from tests.support.faulty_files import FaultyFiles
from tests.support.stores import StoreBench

BODY = 12000
BEFORE = 5  # messages of this size in a segment of 64 KiB


def full_store(folder, files):
    """A bench whose next message needs a new segment."""
    folder.mkdir()
    bench = StoreBench(folder, files, segment_bytes=65536)
    for number in range(BEFORE):
        bench.push(b"%04d" % number + bytes(BODY))
    bench.store.write_out()
    return bench


def calls_of_a_roll(folder):
    """The seam calls that a message costs which needs a new segment."""
    files = FaultyFiles()
    bench = full_store(folder, files)
    before = len(files.calls)
    bench.push(bytes(BODY))
    assert bench.store._segments.keys() == {1, 2}
    return files.calls[before:]


def numbers(bench, ack=True):
    return [int(shown.body[:4]) for shown in bench.drain(ack)]


@pytest.mark.parametrize("how", ["fail", "dead"])
def test_full_disk_at_any_call_of_a_roll_refuses_the_message_and_nothing_else(tmp_path, how):
    calls = calls_of_a_roll(tmp_path / "whole")
    assert {call for call, _ in calls} >= {"create"}

    for number in range(1, len(calls) + 1):
        files = FaultyFiles(how=how, error=errno.ENOSPC)
        bench = full_store(tmp_path / f"{number}", files)
        files.fail_at = len(files.calls) + number
        for _ in range(3 if how == "dead" else 1):
            with pytest.raises(StoreFull, match="No space left on device"):
                bench.push(bytes(BODY))
        location, first = bench.shift()
        bench.store.delete(location)  # acks have their room
        bench.store.write_out()
        files.fail_at = None

        bench.push(b"%04d" % BEFORE + bytes(BODY))
        bench.store.write_out()

        assert first.body[:4] == b"0000" and bench.fenced == []
        assert bench.store.ready_count == BEFORE
        bench.crash()
        assert numbers(bench) == list(range(1, BEFORE + 1))


def test_full_disk_leaves_nothing_behind_that_a_boot_trips_over(tmp_path):
    for number in range(1, len(calls_of_a_roll(tmp_path / "whole")) + 1):
        files = FaultyFiles(how="dead", error=errno.ENOSPC)
        bench = full_store(tmp_path / f"{number}", files)
        files.fail_at = len(files.calls) + number
        with pytest.raises(StoreFull):
            bench.push(bytes(BODY))
        files.fail_at = None

        bench.crash()

        assert numbers(bench, ack=False) == list(range(BEFORE)) and bench.report.lost == 0
