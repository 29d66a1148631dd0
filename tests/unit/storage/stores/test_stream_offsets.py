"""Stored positions of stream consumers: kept over restarts and kills, whole after torn writes,
bounded in number.
"""
import pytest

from gomq_py.storage.disk.files import Files
from gomq_py.storage.stores import stream_offsets
from gomq_py.storage.stores.stream_offsets import SLOT_BYTES, StreamOffsets
from tests.support.streams import StreamBench

INCARNATION = bytes(range(16))


@pytest.fixture
def opened(tmp_path):
    """Opens the file anew, as a restart does."""
    made = []

    def open_(next_offset=1 << 40, incarnation=INCARNATION):
        offsets = StreamOffsets(tmp_path, Files(), incarnation)
        offsets.load(next_offset)
        made.append(offsets)
        return offsets
    yield open_
    for offsets in made:
        offsets.close()


def test_nobody_costs_no_file(opened, tmp_path):
    opened()
    assert list(tmp_path.iterdir()) == []


def test_positions_survive(opened):
    offsets = opened()
    for offset in (1, 7, 5):
        offsets.put("a", offset, 1000 + offset)
    offsets.put("\u00fc" * 100, 9, 2000)

    again = opened()

    assert (again.get("a"), again.get("\u00fc" * 100), again.get("b")) == (5, 9, None)
    assert again.items() == [("a", 5, 1005), ("\u00fc" * 100, 9, 2000)]


def test_forgotten_position_is_gone_and_its_place_used_again(opened):
    offsets = opened()
    offsets.put("a", 1, 0)
    assert offsets.forget("a") and not offsets.forget("a")
    offsets.put("b", 2, 0)

    again = opened()

    assert (again.get("a"), again.get("b")) == (None, 2)


@pytest.mark.parametrize("first_ms, second_ms, expected", [(1000, 2000, 2), (2000, 1000, 1)])
def test_consumer_that_a_power_cut_left_twice_is_where_it_moved_last(
    opened, tmp_path, first_ms, second_ms, expected
):
    """Forgotten and noted anew in another slot; of that the second was flushed alone.

    Forgotten again, neither comes back.
    """
    offsets = opened()
    offsets.put("a", 1, first_ms)
    first_slot = (tmp_path / stream_offsets.NAME).read_bytes()[SLOT_BYTES:2 * SLOT_BYTES]
    offsets.forget("a")
    offsets.put("b", 5, 0)  # takes the free slot
    offsets.put("a", 2, second_ms)
    with open(tmp_path / stream_offsets.NAME, "r+b") as file:
        file.seek(SLOT_BYTES)
        file.write(first_slot)

    again = opened()

    assert again.items() == [("a", expected, max(first_ms, second_ms))]
    again.forget("a")
    assert opened().items() == []


def test_position_behind_the_end_is_the_end(opened):
    """A power cut took messages that a consumer had seen;
    their offsets go to others, which it must not miss.
    """
    opened().put("a", 50, 0)

    assert opened(next_offset=20).get("a") == 20


def test_torn_write_leaves_the_position_before(opened, tmp_path):
    offsets = opened()
    offsets.put("a", 1, 0)
    before = (tmp_path / stream_offsets.NAME).read_bytes()
    offsets.put("a", 2, 0)
    after = (tmp_path / stream_offsets.NAME).read_bytes()
    changed = [at for at in range(len(before)) if before[at] != after[at]]
    offsets.close()

    for at in range(changed[0], changed[-1] + 1):
        (tmp_path / stream_offsets.NAME).write_bytes(after[:at] + before[at:])
        assert opened().get("a") in (1, 2)
    (tmp_path / stream_offsets.NAME).write_bytes(after)
    assert opened().get("a") == 2


@pytest.mark.parametrize("at", [0, 13, 29, SLOT_BYTES, SLOT_BYTES + 3, SLOT_BYTES + 258])
def test_damage_costs_the_consumer_concerned(opened, tmp_path, at):
    offsets = opened()
    offsets.put("a", 1, 0)
    offsets.put("b", 2, 0)
    offsets.close()
    octets = bytearray((tmp_path / stream_offsets.NAME).read_bytes())
    octets[at] ^= 0x20
    (tmp_path / stream_offsets.NAME).write_bytes(octets)

    again = opened()

    assert again.get("a") is None
    assert again.get("b") == (None if at < 32 else 2)
    again.put("c", 3, 0)
    assert opened().get("c") == 3


def test_file_of_another_stream_is_nobodys(opened):
    opened().put("a", 1, 0)

    assert opened(incarnation=bytes(16)).get("a") is None


def test_file_grows(opened):
    offsets = opened()
    for number in range(200):
        offsets.put(f"c{number}", number, 0)

    again = opened()

    assert [again.get(f"c{number}") for number in range(200)] == list(range(200))


def test_consumers_that_moved_longest_ago_make_room(opened, monkeypatch):
    monkeypatch.setattr(stream_offsets, "MOST_TAGS", 50)
    monkeypatch.setattr(stream_offsets, "FORGOTTEN_AT_ONCE", 10)
    offsets = opened()
    for number in range(60):
        offsets.put(f"c{number}", number, number)

    assert [number for number in range(60) if offsets.get(f"c{number}") is None] == list(range(10))
    assert len(opened().items()) == 50


@pytest.mark.parametrize("restart", ["reopen", "crash"])
def test_store_keeps_positions(tmp_path, restart):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(10)
    bench.store.put_offset("a", 4, 0)

    getattr(bench, restart)()

    assert bench.store.offsets.get("a") == 4
    bench.store.forget_offset("a")
    bench.reopen()
    assert bench.store.offsets.get("a") is None
    bench.store.delete_files()
    bench.committer.stop()
    assert not (tmp_path / "stream").exists()


def test_positions_are_flushed_without_anybody_waiting(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(10)
    bench.sync()
    flushed = []
    bench.files.sync = lambda file: flushed.append(file.path)

    bench.store.put_offset("a", 4, 0)
    bench.store.close()
    bench.committer.stop()

    assert str(tmp_path / "stream" / stream_offsets.NAME) in flushed


def test_who_has_a_position_forgotten_is_answered_after_its_flush(tmp_path):
    bench = StreamBench(tmp_path, enabled=True)
    bench.push(10)
    bench.store.put_offset("a", 4, 0)
    bench.committer.wait()
    flushed = []
    bench.files.sync = lambda file: flushed.append(file.path)

    bench.store.forget_offset("a")
    bench.committer.wait()

    assert str(tmp_path / "stream" / stream_offsets.NAME) in flushed
    bench.store.close()
    bench.committer.stop()


def test_a_file_that_was_cut_short_takes_positions_again(opened, tmp_path):
    """Shorter than a slot, it once gave out the place of its own head."""
    opened().put("a", 1, 1)
    path = tmp_path / stream_offsets.NAME
    path.write_bytes(path.read_bytes()[:100])
    offsets = opened()
    for number in range(40):
        offsets.put(f"tag {number}", number, 1)
    offsets.close()

    assert opened().get("tag 39") == 39
