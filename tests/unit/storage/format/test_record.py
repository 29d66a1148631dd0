"""Records: literal octets as a store writes them; whatever stands in a segment, nothing is read behind its
end and nothing unsound is believed.
"""
from array import array

import pytest
from crc32c import crc32c
from hypothesis import given, settings, strategies as st

from gomq_py.storage.format import head as head_format, record
from gomq_py.storage.format.record import RecordScanner
from tests.support.stores import StoreBench


class Written:
    """A msgs file with ``bodies`` in it, as octets."""

    def __init__(self, folder, bodies, **fields):
        bench = StoreBench(folder)
        for body in bodies:
            bench.push(body, **fields)
        bench.store.write_out()
        self.octets = (folder / "queue" / "msgs.0000000001").read_bytes()
        self.seed = head_format.decode(self.octets).seed
        self.bodies = bodies

    def scan(self, octets=None, end=None):
        """(bodies, scanner) of what a walk over the octets finds."""
        octets = self.octets if octets is None else octets
        scanner = RecordScanner(octets, 128, len(octets) if end is None else end, self.seed)
        bodies = []
        while scanner.next():
            start = scanner.position + 40 + scanner.routing_length + scanner.properties_length
            bodies.append(bytes(octets[start:start + scanner.body_length]))
        return bodies, scanner


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return Written(tmp_path_factory.mktemp("records"), [b"%d" % n * (n * 7 % 50) for n in range(40)])


def test_a_record_is_these_octets(tmp_path):
    written = Written(
        tmp_path, [b"hello"], exchange=b"x", routing_key=b"key", properties=b"\x10\x00\x02", priority=4,
        expires_at_ms=0x0102030405,
    )
    header = bytes.fromhex("524d0101040006000300000005000000000000000068e5cf8b0100000504030201000000")
    routing = b"\x01x\x03key"
    content = b"\x10\x00\x02hello"

    expected = header + crc32c(routing, crc32c(header, written.seed)).to_bytes(4, "little") + routing
    expected += content + crc32c(content, written.seed).to_bytes(4, "little")

    assert written.octets[128:128 + 64] == expected.ljust(64, b"\0")
    assert record.size_of(6, 3, 5) == 64


def test_a_walk_finds_every_record(written):
    bodies, scanner = written.scan()

    assert bodies == written.bodies
    assert scanner.damaged == []
    assert (scanner.ordinal, scanner.next_ordinal) == (39, 40)
    assert written.octets[scanner.at:] == bytes(len(written.octets) - scanner.at)


def test_a_walk_ends_at_every_possible_cut(written):
    _, scanner = written.scan()
    for end in range(128, scanner.at + 8):
        bodies, _ = written.scan(end=end)

        assert bodies == written.bodies[:len(bodies)]

    assert bodies == written.bodies


def test_a_walk_over_fewer_octets_than_it_is_told_is_refused(written):
    with pytest.raises(ValueError):
        RecordScanner(written.octets, 128, len(written.octets) + 1, written.seed)


def test_another_seed_finds_nothing(written):
    scanner = RecordScanner(written.octets, 128, len(written.octets), written.seed ^ 1)

    assert not scanner.next()
    assert scanner.at == 128


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_costs_the_record_it_is_in(written, data):
    _, scanner = written.scan()
    octets = bytearray(written.octets)
    at = data.draw(st.integers(128, scanner.at - 1))
    octets[at] ^= 1 << data.draw(st.integers(0, 7))

    bodies, damaged = written.scan(octets)

    missing = [body for body in written.bodies if body not in bodies]
    assert len(missing) <= 1
    assert [body for body in written.bodies if body not in missing] == bodies
    assert all(start <= at < end and count == 1 for start, end, count in damaged.damaged)
    assert bool(damaged.damaged) == bool(missing) or missing == written.bodies[-1:]


@given(st.lists(st.tuples(st.integers(120, 4000), st.binary(min_size=1, max_size=200)), max_size=6))
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_over_a_segment_only_whole_records_in_order_come_out(written, patches):
    octets = bytearray(written.octets)
    for at, patch in patches:
        octets[at:at + len(patch)] = patch

    bodies, scanner = written.scan(octets)

    found = iter(written.bodies)
    assert all(body in found for body in bodies)
    assert scanner.at <= len(octets)
    assert all(128 <= start < end <= len(octets) for start, end, _ in scanner.damaged)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_random_octets_hold_no_record(octets):
    scanner = RecordScanner(octets, 0, len(octets), 1)

    assert not scanner.next()


def test_a_body_that_looks_like_records_is_not_walked_into(tmp_path):
    (tmp_path / "inner").mkdir()
    inner = Written(tmp_path / "inner", [b"inner"] * 20)
    (tmp_path / "outer").mkdir()
    outer = Written(tmp_path / "outer", [b"first", bytes(3) + inner.octets[128:3000], b"last"])
    octets = bytearray(outer.octets)
    octets[128 + 56 + 12] ^= 0xFF  # the body length of the second record

    bodies, _ = outer.scan(octets)

    assert bodies == [b"first", b"last"]


def test_tally_counts_what_is_gone_and_what_is_damaged(written):
    positions = []
    _, scanner = written.scan()
    walker = RecordScanner(written.octets, 128, len(written.octets), written.seed)
    while walker.next():
        positions.append(walker.position)
    octets = bytearray(written.octets)
    octets[positions[7] + 50] ^= 1
    runs = array("Q", [positions[0], positions[0] + 8, positions[3], positions[6]])

    tally = RecordScanner(octets, 128, len(octets), written.seed)
    tally.tally(runs)

    gone = [0, 3, 4, 5, 7]
    assert (tally.count, tally.acked) == (40, 5)
    assert tally.body_bytes == sum(map(len, written.bodies))
    assert tally.acked_bytes == sum(len(written.bodies[number]) for number in gone)
    assert tally.damaged == [(positions[7], positions[8], 1)]
    assert tally.at == scanner.at
