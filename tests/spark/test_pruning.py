"""Pruning: a filter on offsets excludes what it must, and nothing that may match."""
import pytest
from pyspark.sql.datasource import (
    EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual, Not,
)

from gomq_py.spark.planning import Piece
from gomq_py.spark.pruning import Bounds


@pytest.mark.parametrize("filters, bounds", [
    ([], (0, (1 << 63) - 1)), ([GreaterThan(("offset",), 5)], (6, (1 << 63) - 1)),
    ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], (5, 8)),
    ([EqualTo(("offset",), 7)], (7, 7)), ([LessThanOrEqual(("offset",), 7)], (0, 7)),
    ([In(("offset",), (3, 9, 4))], (3, 9)),
    ([Not(EqualTo(("offset",), 7))], (0, (1 << 63) - 1)),
    ([EqualTo(("queue",), "a"), EqualTo(("properties", "offset"), 1)], (0, (1 << 63) - 1)),
])
def test_offsets_that_may_match(filters, bounds):
    found = Bounds(filters)

    assert (found.first, found.last) == bounds


def test_a_piece_matches_when_one_of_its_offsets_does():
    piece = Piece("s", "e", 1, 0, 128, 0, 999, 10, 20)

    assert [
        offset for offset in range(30) if Bounds([EqualTo(("offset",), offset)]).may_match(piece)
    ] == list(range(10, 20))
