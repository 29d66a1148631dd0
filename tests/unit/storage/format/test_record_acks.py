"""Acks: literal octets as a store writes them; entries that do not check are not there."""
import pytest
from crc32c import crc32c
from hypothesis import given, settings, strategies as st

from gomq_py.storage.format import head as head_format
from gomq_py.storage.format import record
from tests.support.stores import StoreBench


class Acked:
    """The acks file of a store in which ``count`` messages were delivered and then some of them deleted,
    by number.
    """

    def __init__(self, folder, count, deleted, requeued=()):
        bench = StoreBench(folder)
        for number in range(count):
            bench.push(b"%04d" % number)
        self.locations = [bench.shift()[0] & 0xFFFFFFF for _ in range(count)]
        for number in deleted:
            bench.store.delete(self.locations[number] | 1 << 28)
        for number in requeued:
            bench.store.requeue(self.locations[number] | 1 << 28)
            bench.shift()
        bench.store.write_out()
        self.octets = (folder / "queue" / "acks.0000000001").read_bytes()
        self.seed = head_format.decode(self.octets).seed

    def words(self):
        """The entries as words, each checked against the literal rule."""
        words = []
        for index in range(1000):
            entry = self.octets[128 + 8 * index:136 + 8 * index]
            if entry == bytes(8):
                break
            assert int.from_bytes(entry[4:], "little") == crc32c(entry[:4], self.seed + index & 0xFFFFFFFF)
            words.append(int.from_bytes(entry[:4], "little"))
        return words


def word(position, kind):
    """A multiple of 8 plus the kind; bit 31 stands for the 4 of a position between two multiples of 8."""
    return position // 8 * 8 + kind + (0x80000000 if position % 8 else 0)


def test_one_and_two_acks_are_entries_and_three_neighbours_a_run(tmp_path):
    acked = Acked(tmp_path, 12, [0, 2, 3, 6, 7, 8, 9])
    at = acked.locations

    assert acked.words() == [
        word(at[0], 1), word(at[2], 1), word(at[3], 1), word(at[6], 2), word(at[10], 3)]
    assert [position % 8 for position in (at[2], at[3], at[6])] == [0, 4, 0]


def test_what_was_delivered_twice_has_a_count_that_is_overwritten(tmp_path):
    acked = Acked(tmp_path, 3, [], requeued=[1, 1, 1, 2])
    at = acked.locations

    assert acked.words() == [word(at[1], 4), 4 << 3 | 5, word(at[2], 4), 2 << 3 | 5]


def test_the_mark_says_how_far_was_delivered(tmp_path):
    acked = Acked(tmp_path, 5, [])

    assert head_format.decode_mark(
        acked.seed, head_format.DELIVERED_SALT, acked.octets, head_format.DELIVERED_AT
    ) == acked.locations[4] + 44


def test_load_reads_runs_counts_and_where_they_end(tmp_path):
    acked = Acked(tmp_path, 12, [0, 2, 3, 6, 7, 8, 9], requeued=[5])
    at = acked.locations

    acks = record.load_acks(acked.octets, acked.seed)

    assert list(acks.runs) == [at[0], at[0] + 8, at[2], at[2] + 8, at[3], at[3] + 8, at[6], at[10]]
    assert acks.counts == {at[5]: (2, 4)}  # the run that was being collected is written behind the pair
    assert (acks.entries, acks.holes) == (7, 0)


def test_entries_behind_the_sealed_number_are_not_read(tmp_path):
    acked = Acked(tmp_path, 12, [0, 2, 4])

    acks = record.load_acks(acked.octets, acked.seed, 2)

    assert len(acks.runs) == 4 and acks.entries == 2


@pytest.mark.parametrize("gap", [8, 4096, 60000])
def test_entries_behind_a_gap_are_read(tmp_path, gap):
    acked = Acked(tmp_path, 4, [0, 2])
    octets = bytearray(acked.octets[:136] + bytes(200000))
    index = 1 + gap // 8
    ack = word(acked.locations[2], 1).to_bytes(4, "little")
    octets[128 + 8 * index:136 + 8 * index] = (
        ack + crc32c(ack, acked.seed + index & 0xFFFFFFFF).to_bytes(4, "little")
    )

    acks = record.load_acks(bytes(octets), acked.seed)

    assert len(acks.runs) == 4
    assert (acks.entries, acks.holes) == (index + 1, index - 1)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_costs_one_entry_or_its_pair(tmp_path_factory, data):
    acked = data.draw(st.just(_sample(tmp_path_factory)))
    octets = bytearray(acked.octets)
    at = data.draw(st.integers(128, 128 + 8 * 5 - 1))
    octets[at] ^= 1 << data.draw(st.integers(0, 7))

    acks = record.load_acks(bytes(octets), acked.seed)

    sound = record.load_acks(acked.octets, acked.seed)
    pairs = list(zip(sound.runs[::2], sound.runs[1::2]))
    left = list(zip(acks.runs[::2], acks.runs[1::2]))
    assert set(left) < set(pairs) and len(left) == len(pairs) - 1


@given(st.binary(max_size=2000), st.integers(0, 0xFFFFFFFF))
@settings(deadline=None)
def test_random_octets_hold_no_entries(octets, seed):
    acks = record.load_acks(bytes(128) + octets, seed)

    assert len(acks.runs) == 0 and acks.counts == {}


def test_the_file_has_an_entry_for_each_record_that_a_segment_can_hold():
    assert record.capacity_for(65536) == 128 + (65536 - 128) // 44 * 8
    assert record.capacity_for(65536, 1) == 128 + (65536 - 128) // 48 * 8


_samples = {}


def _sample(tmp_path_factory):
    if not _samples:
        _samples["acked"] = Acked(tmp_path_factory.mktemp("acks"), 12, [0, 2, 3, 6, 7, 8, 9])
    return _samples["acked"]


@pytest.mark.parametrize("due_s,now_s", [
    (0, 0), (1_700_000_000, 1_700_000_000), (1_700_000_000, 1_700_600_000), (1_700_000_000, 1_600_000_000)
])
@pytest.mark.parametrize("count", [1, 2])
def test_due_is_the_time_near_now_and_goes_with_its_count(due_s, now_s, count):
    value = record.due_value(due_s, count)

    assert value << 3 < 1 << 32
    assert record.due_of(value, count, now_s) == due_s
    assert record.due_of(value, count + 1, now_s) == 0
