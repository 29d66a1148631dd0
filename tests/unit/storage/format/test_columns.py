"""Columns: what a walk over many records says is what a walk over each says, and nothing unsound is handed
out.
"""
import struct

import pytest

from gomq_py.content.properties import FIELDS, Properties
from gomq_py.storage.format import columns, head as head_format
from tests.support.stores import StoreBench
from tests.support.streams import StreamBench

EVERYTHING = 1 << 32


class Written:
    """One segment with these (exchange, routing key, properties, body)."""

    def __init__(self, folder, messages):
        bench = StoreBench(folder)
        for exchange, routing_key, properties, body in messages:
            bench.push(body, exchange=exchange, routing_key=routing_key, properties=properties)
        bench.store.write_out()
        content = (folder / "queue" / "msgs.0000000001").read_bytes()
        self.head = head_format.decode(content)
        block = columns.Block(len(messages), 1 << 30)
        block.walk(content, 128, len(content), self.head, 0, EVERYTHING)
        self.octets = content[:block.at]


MESSAGES = [(b"x" * (n % 3), b"key.%d" % n, b"\0\0", b"b" * (n * 37 % 300)) for n in range(200)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return Written(tmp_path_factory.mktemp("columns"), MESSAGES)


def walk(block, written, octets=None, at=128, first=0, until=EVERYTHING):
    octets = written.octets if octets is None else octets
    return block.walk(octets, at, len(octets), written.head._replace(first_offset=1000), first, until)


def values(ends, content):
    bounds = struct.unpack(f"<{len(ends) // 4}i", ends)
    return [bytes(content[begin:end]) for begin, end in zip(bounds, bounds[1:], strict=False)]


def rows(block, octets):
    offsets = struct.unpack_from(f"<{block.count}q", block.offsets)
    fields = [
        values(*block.gather(field, octets))
        for field in (columns.EXCHANGE, columns.ROUTING_KEY, columns.PROPERTIES, columns.BODY)
    ]
    return list(zip(offsets, *fields, strict=True))


def test_a_walk_gives_every_field_of_every_record(written):
    block = columns.Block(1000, 1 << 30)

    status = walk(block, written)

    assert (status, block.count, block.at) == (columns.END, 200, len(written.octets))
    assert rows(block, written.octets) == [(1000 + n, *message) for n, message in enumerate(MESSAGES)]
    assert struct.unpack_from("<2q", block.timestamps) == (1700000000000 * 1000, 1700000000000 * 1000)


@pytest.mark.parametrize("capacity, limit_bytes", [(1, 1 << 30), (7, 1 << 30), (1000, 1), (1000, 500)])
def test_a_full_block_goes_on_where_it_ended(written, capacity, limit_bytes):
    block = columns.Block(capacity, limit_bytes)
    found, at, status = [], 128, columns.FULL

    while status == columns.FULL:
        status = walk(block, written, at=at)
        found += rows(block, written.octets)
        at = block.at

    assert [row[1:] for row in found] == MESSAGES


def test_offsets_outside_of_those_wanted_are_left_out(written):
    block = columns.Block(1000, 1 << 30)

    assert walk(block, written, first=50, until=60) == columns.DONE
    assert [row[0] for row in rows(block, written.octets)] == list(range(1050, 1060))


def test_octets_that_end_anywhere_give_whole_records_and_say_how_much_the_next_needs(written):
    block = columns.Block(1000, 1 << 30)
    for end in range(128, 2000):
        block.next_ordinal = 0
        status = walk(block, written, written.octets[:end])
        assert status == columns.END
        assert (
            block.at <= end
            and rows(block, written.octets) == [(1000 + n, *MESSAGES[n]) for n in range(block.count)]
        )
        if block.skipped:
            assert block.at + block.skipped > end
            block.next_ordinal = 0
            before = block.count
            walk(block, written, written.octets[:block.at + block.skipped])
            assert block.count == before + 1


def test_no_turned_bit_is_handed_out(written):
    block = columns.Block(1000, 1 << 30)
    walk(block, written)
    expected = rows(block, written.octets)
    for at in range(128, 1500):
        spoiled = bytearray(written.octets)
        spoiled[at] ^= 1 << at % 8
        block.next_ordinal = 0
        status = walk(block, written, spoiled)
        found = rows(block, spoiled)
        assert found == expected[:len(found)]
        assert status != columns.END or len(found) == len(expected) or block.skipped


def test_a_walk_goes_on_behind_a_spoiled_body_and_behind_a_spoiled_header(tmp_path):
    bench = StreamBench(tmp_path)
    bench.push(5)
    bench.append(1, b"5".rjust(300))  # a long record, the others are small
    bench.push(14)
    bench.damage({5}, "body")
    bench.damage({9}, "header")
    content = (tmp_path / "stream" / "msgs.0000000001").read_bytes()
    found = head_format.decode(content)
    block = columns.Block(100, 1 << 30)
    at, seen, events = 128, [], []
    while True:
        status = block.walk(content, at, len(content), found, 0, EVERYTHING)
        seen += [row[0] for row in rows(block, content)]
        at = block.at
        if status == columns.SPOILED:
            events.append(("spoiled", block.next_ordinal))
            block.skip()
            at = block.at
        elif status == columns.MISSING:
            events.append(("missing", block.next_ordinal, block.accept(content)))
        elif status == columns.DAMAGED:
            at = block.seek(content, at, len(content), found.seed)
            if at < 0:
                break
        else:
            break

    assert seen == [n for n in range(20) if n not in (5, 9)]
    assert events == [("spoiled", 5), ("missing", 9, 10)]


def test_properties_are_those_that_were_published(tmp_path):
    given = [
        {}, {"content_type": "text/plain"}, {"delivery_mode": 2, "priority": 9},
        {"headers": {"a": 1}, "message_id": "m-1", "timestamp": 1700000000},
        {
            name: {"shortstr": f"<{name}>", "octet": 3, "table": {"k": "v"}, "timestamp": 99}[kind]
            for name, _, kind in FIELDS
        },
    ]
    written = Written(
        tmp_path, [(b"", b"q", Properties(**properties).encode(), b"body") for properties in given]
    )
    block = columns.Block(100, 1 << 30)
    walk(block, written)

    block.scan_properties(written.octets)

    for place, (name, _, kind) in enumerate(FIELDS):
        present, ends, content = block.gather_property(place, written.octets)
        for row, (properties, value) in enumerate(zip(given, values(ends, content), strict=True)):
            assert bool(present[row >> 3] & 1 << (row & 7)) == (name in properties)
            if name in properties and kind == "shortstr":
                assert value.decode() == properties[name]
            elif name in properties and kind != "table":
                assert int.from_bytes(value) == properties[name]


def test_properties_that_lie_about_their_lengths_read_nothing_beyond_themselves(tmp_path):
    lies = [b"\xff\xfc" + b"\xff" * n for n in range(6)] + [
        b"\x80\x00\x10abc", b"\x20\x00\xff\xff\xff\xff", b"\x00\x40abc", b"\x00"
    ]
    written = Written(tmp_path, [(b"", b"q", lie, b"") for lie in lies])
    block = columns.Block(100, 1 << 30)
    walk(block, written)

    block.scan_properties(written.octets)

    for place in range(columns.PROPERTY_COUNT):
        present, ends, content = block.gather_property(place, written.octets)
        assert all(len(value) <= 4 for value in values(ends, content))


def test_a_walk_past_the_buffer_is_refused(written):
    with pytest.raises(ValueError):
        columns.Block(10, 10).walk(
            written.octets, 128, len(written.octets) + 1, written.head, 0, EVERYTHING
        )


def test_rows_whose_properties_are_no_basic_ones_are_told_and_get_others(tmp_path):
    bench = StoreBench(tmp_path)
    for kind in (1, 2, 77):
        bench.message.assign(b"amq.topic", b"k", b"\x80\0\1t" if kind == 1 else b"\1\1", b"body", 1)
        bench.message.set_kind(kind, 2)
        bench.store.append(bench.message)
    bench.store.write_out()
    content = (tmp_path / "queue" / "msgs.0000000001").read_bytes()
    block = columns.Block(10, 1 << 30)
    block.walk(content, 128, len(content), head_format.decode(content), 0, EVERYTHING)

    others = [block.other_kind(row, content) for row in range(3)]
    block.set_properties(1, len(content), 4)
    block.set_properties(2, len(content), 0)
    block.scan_properties(content + b"\x80\0\1u")

    assert block.others == 2
    assert others == [None, (2, 2, b"\x09amq.topic\1k", b"\1\1"), (77, 2, b"\x09amq.topic\1k", b"\1\1")]
    present, ends, texts = block.gather_property(0, content + b"\x80\0\1u")
    assert (present, values(ends, texts)) == (b"\3", [b"t", b"u", b""])
