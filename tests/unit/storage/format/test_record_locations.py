"""A location is taken apart into what it was made of, and a store hands out such locations."""
import pytest

from gomq_py.storage.format import record
from gomq_py.storage.stores.segment_log import LARGEST_SEGMENT_NUMBER
from gomq_py.storage.stores.store import LARGEST_SEGMENT_BYTES
from tests.support.stores import StoreBench


@pytest.mark.parametrize("level, number, position", [
    (0, 1, 128), (255, LARGEST_SEGMENT_NUMBER, LARGEST_SEGMENT_BYTES - 8), (1, 0, 0),
    (7, LARGEST_SEGMENT_NUMBER, 128),
])
def test_a_location_is_taken_apart_into_what_it_was_made_of(level, number, position):
    location = record.location_of(record.level_bits(level), number, position)

    parts = record.level_of(location), record.number_of(location), record.position_of(location)
    assert parts == (level, number, position)
    assert location < 1 << 64


def test_locations_of_a_level_sort_as_their_messages_came():
    ends = (128, LARGEST_SEGMENT_BYTES - 8)
    came = [
        record.location_of(record.level_bits(3), number, position)
        for number in (1, 2, LARGEST_SEGMENT_NUMBER) for position in ends
    ]

    assert came == sorted(came)


@pytest.mark.parametrize("level, number", [(0, 1), (255, LARGEST_SEGMENT_NUMBER)])
def test_a_store_hands_out_such_locations(tmp_path, level, number):
    bench = StoreBench(tmp_path, level=level)
    bench.store.begin_behind(number - 1)

    found = [bench.push(b"first"), bench.push(b"second")]

    assert [record.level_of(location) for location in found] == [level, level]
    assert [record.number_of(location) for location in found] == [number, number]
    assert [record.position_of(location) for location in found] == [128, 128 + 44]
    for location in found:
        assert bench.shift()[0] == location
    bench.close()
