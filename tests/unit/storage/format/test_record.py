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
        self.head = head_format.decode(self.octets)
        self.seed = self.head.seed
        self.bodies = bodies

    def scan(self, octets=None, end=None):
        """(bodies, scanner) of what a walk over the octets finds."""
        octets = self.octets if octets is None else octets
        scanner = self.scanner(octets, end)
        bodies = []
        while scanner.next():
            start = scanner.routing_at + scanner.routing_length + scanner.properties_length
            bodies.append(bytes(octets[start:start + scanner.body_length]))
        return bodies, scanner

    def scanner(self, octets=None, end=None):
        octets = self.octets if octets is None else octets
        return RecordScanner(
            octets, 128, len(octets) if end is None else end, self.seed, self.head.begun_ms)


# Bodies of records of one form, and of both in turn.
SMALL = [b"%d" % n * (n * 7 % 50) for n in range(40)]
LONG = [b"%d" % n * (n * 7 % 50 + 256) for n in range(40)]
FORMS = {"small": SMALL, "long": LONG, "both": [(SMALL, LONG)[n % 3 == 1][n] for n in range(40)]}


@pytest.fixture(scope="module", params=FORMS.values(), ids=list(FORMS))
def written(tmp_path_factory, request):
    return Written(tmp_path_factory.mktemp("records"), request.param)


def test_a_small_record_is_these_octets(tmp_path):
    """Its segment has begun a minute before its first message."""
    written = Written(
        tmp_path, [b"hello", b"x" * 16], exchange=b"x", routing_key=b"key", properties=b"\x10\x00\x02",
        priority=4, expires_at_ms=1700000000000 + 0x01020304,
    )
    content = bytes.fromhex("b4010305 0000 00a60e00 04030201") + b"\x01x\x03key\x10\x00\x02hello"
    second = bytes.fromhex("b4010310 0100 00a60e00 04030201") + b"\x01x\x03key\x10\x00\x02" + b"x" * 16

    assert written.head.begun_ms == 1700000000000 - 60000
    for at, octets in ((128, content), (172, second)):
        expected = octets + crc32c(octets, written.seed + 5 & 0xFFFFFFFF).to_bytes(4, "little")
        assert written.octets[at:at + 44] == expected.ljust(44, b"\0")


def test_message_of_16_octets_takes_44(tmp_path):
    written = Written(tmp_path, [bytes(16)] * 3, routing_key=b"benchmark", properties=b"\x10\x00\x02")

    assert [written.octets[at] for at in (128, 172, 216, 260)] == [0xA0, 0xA0, 0xA0, 0]
    assert written.scan()[1].at == 128 + 3 * 44


TIME_MS = 1700000000000  # of the messages; their segment began 60000 earlier


@pytest.mark.parametrize("fields, size", [
    ({"priority": 15}, 44), ({"priority": 16}, 48), ({"body": bytes(255)}, 276), ({"body": bytes(256)}, 304),
    ({"properties": bytes(255)}, 272), ({"properties": bytes(256)}, 304),
    ({"expires_at_ms": TIME_MS}, 44), ({"expires_at_ms": TIME_MS - 1}, 48),
    ({"expires_at_ms": TIME_MS + (1 << 32) - 1}, 44), ({"expires_at_ms": TIME_MS + (1 << 32)}, 48),
    ({"exchange": bytes(200), "routing_key": bytes(200), "body": bytes(76)}, 496),
    ({"exchange": bytes(200), "routing_key": bytes(200), "body": bytes(77)}, 528),
    ({"persistent": False}, 48),
], ids=range(13))
def test_message_that_does_not_fit_takes_the_long_form(tmp_path, fields, size):
    body = fields.get("body", b"")
    fields = {"properties": b"\0\0", "routing_key": b"", **fields}
    fields.pop("body", None)
    written = Written(tmp_path, [body], **fields)

    bodies, scanner = written.scan()

    assert bodies == [body] and scanner.size == size
    assert scanner.timestamp_ms == TIME_MS and scanner.priority == fields.get("priority", 0)
    assert scanner.expires_at_ms == fields.get("expires_at_ms", 0)


@pytest.mark.parametrize("came_ms, size", [
    (TIME_MS - 60001, 56), (TIME_MS - 60000, 44), (TIME_MS - 60000 + (1 << 28) - 1, 44),
    (TIME_MS - 60000 + (1 << 28), 56),
])
def test_time_that_is_far_from_the_segments_takes_the_long_form(tmp_path, came_ms, size):
    bench = StoreBench(tmp_path)
    bench.push(b"1")
    bench.message.assign(b"", b"q", b"\0\0", b"2", came_ms, persistent=True)
    bench.store.append(bench.message)
    bench.store.write_out()

    head = head_format.decode(octets := (tmp_path / "queue" / "msgs.0000000001").read_bytes())
    scanner = RecordScanner(octets, 128, len(octets), head.seed, head.begun_ms)
    assert scanner.next() and scanner.next()
    assert (scanner.timestamp_ms, scanner.size) == (came_ms, size)


def test_record_behind_a_million_others_takes_the_long_form(tmp_path):
    """Its ordinal has no room in a small one. Records are read to the last."""
    bench = StoreBench(tmp_path, segment_bytes=64 << 20)
    bench.message.assign(b"", b"q", b"\0\0", b"body", TIME_MS, persistent=True)
    while bench.store.append(bench.message) or bench.message.describe()["location"] >> 28 < 5:
        pass
    for _ in range((1 << 20) + 1):
        bench.store.append(bench.message)
    bench.store.write_out()

    head = head_format.decode(octets := (tmp_path / "queue" / "msgs.0000000005").read_bytes())
    scanner = RecordScanner(octets, 128, len(octets), head.seed, head.begun_ms)
    scanner.tally(array("Q"))
    assert (scanner.count, scanner.damaged) == ((1 << 20) + 2, [])
    assert scanner.at == 128 + (1 << 20) * 44 + 2 * 56
    bench.store.delete_files()


@given(st.fixed_dictionaries({
    "body": st.binary(max_size=300), "exchange": st.binary(max_size=255),
    "routing_key": st.binary(max_size=255),
    "properties": st.binary(max_size=300), "priority": st.integers(0, 255), "persistent": st.booleans(),
    "expires_at_ms": st.just(0) | st.integers(TIME_MS - 5, TIME_MS + (1 << 33)),
}))
@settings(max_examples=200, deadline=None)
def test_whatever_a_message_is_its_record_gives_back(tmp_path_factory, fields):
    bench = StoreBench(tmp_path_factory.mktemp("any"), durable=False)
    bench.folder.joinpath("queue").mkdir()
    before = bench.push(**fields)
    bench.push(b"behind")

    bench.peek()
    message = bench.message
    found = {
        "body": message.get_body(), "exchange": message.get_exchange(),
        "routing_key": message.get_routing_key(), "properties": message.get_properties(),
        **{name: message.describe()[name] for name in ("priority", "persistent", "expires_at_ms")}}
    bench.store.shift()

    assert found == fields and message.describe()["location"] == before
    assert message.describe()["timestamp_ms"] == TIME_MS
    assert bench.peek().body == b"behind"
    bench.close()


def test_content_of_a_long_record_with_its_checksum_is_no_small_record(tmp_path):
    """Both checksums continue from the same seed: without a salt, a publisher could write such a record. Its
    own record's header is damaged here, so that the next record is looked for.
    """
    small = bytes.fromhex("a001ff28 0100 00a60e00") + b"\0\0" + bytes(255) + b"forged".ljust(40)
    written = Written(tmp_path, [b"first", small, b"last"], routing_key=b"keys..", properties=b"")
    at = written.octets.index(small)
    octets = bytearray(written.octets)
    octets[128 + 44 + 12] ^= 0xFF

    assert at % 4 == 0
    assert octets[at + len(small):at + len(small) + 4] == crc32c(small, written.seed).to_bytes(4, "little")
    assert written.scan(octets)[0] == [b"first", b"last"]


@pytest.mark.parametrize("parts, is_one", [(480, True), (481, False), (1022, False)])
def test_record_that_no_writer_makes_is_not_measured(tmp_path, parts, is_one):
    """Behind damage each octet with bit 7 may begin a record: the limit bounds what is read for each."""
    written = Written(tmp_path, [b"x"])
    longest = bytearray(b"\xff" * 255)
    body = min(parts - 2, 255)
    properties = min(parts - 2 - body, 255)
    exchange = min(parts - 2 - body - properties, 255)
    key = parts - 2 - body - properties - exchange
    small = b"\xb4\0" + bytes((properties, body)) + bytes(2) + (60000 << 4).to_bytes(4, "little") + bytes(4)
    small += bytes((exchange,)) + longest[:exchange] + bytes((key,)) + longest[:key]
    small += longest[:properties] + longest[:body]
    small += crc32c(small, written.seed + 5 & 0xFFFFFFFF).to_bytes(4, "little")

    bodies, _ = written.scan(written.octets[:128] + small + bytes(7))

    assert bodies == [b"\xff" * body] * is_one


def test_a_long_record_is_these_octets(tmp_path):
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
        written.scanner(end=len(written.octets) + 1)


def test_another_seed_finds_nothing(written):
    scanner = RecordScanner(written.octets, 128, len(written.octets), written.seed ^ 1, 0)

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
    scanner = RecordScanner(octets, 0, len(octets), 1, 0)

    assert not scanner.next()


def test_a_body_that_looks_like_records_is_not_walked_into(tmp_path):
    (tmp_path / "inner").mkdir()
    inner = Written(tmp_path / "inner", [b"inner"] * 20)
    (tmp_path / "outer").mkdir()
    outer = Written(tmp_path / "outer", [b"first", bytes(3) + inner.octets[128:3000], b"last"])
    octets = bytearray(outer.octets)
    octets[128 + 44 + 12] ^= 0xFF  # the body length of the second record

    bodies, _ = outer.scan(octets)

    assert bodies == [b"first", b"last"]


def test_tally_counts_what_is_gone_and_what_is_damaged(written):
    positions = []
    _, scanner = written.scan()
    walker = written.scanner()
    while walker.next():
        positions.append(walker.position)
    octets = bytearray(written.octets)
    octets[positions[7] + 43] ^= 1
    runs = array("Q", [positions[0], positions[0] + 8, positions[3], positions[6]])

    tally = written.scanner(octets)
    tally.tally(runs)

    gone, bodies = [0, 3, 4, 5], [body for number, body in enumerate(written.bodies) if number != 7]
    if written.octets[positions[7]] < 0x80:  # a small record is checked with its header: it cannot be counted
        gone, bodies = [*gone, 7], written.bodies
    assert (tally.count, tally.acked) == (len(bodies), len(gone))
    assert tally.body_bytes == sum(map(len, bodies))
    assert tally.acked_bytes == sum(len(written.bodies[number]) for number in gone)
    assert tally.damaged == [(positions[7], positions[8], 1)]
    assert tally.at == scanner.at
