"""Pruning: a filter excludes what it must, and nothing that may match."""
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual, Not,
)

from gomq_py.spark.planning import Piece
from gomq_py.spark.pruning import HIGHEST, Bounds, Span, milliseconds
from gomq_py.spark.transport import Segment

AT = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
AT_MS = 1767323045678


@pytest.mark.parametrize("filters, bounds", [
    ([], (0, HIGHEST)), ([GreaterThan(("offset",), 5)], (5, HIGHEST)),
    ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], (5, 9)),
    ([EqualTo(("offset",), 7)], (7, 7)), ([LessThanOrEqual(("offset",), 7)], (0, 7)),
    ([In(("offset",), (3, 9, 4))], (3, 9)),
    ([Not(EqualTo(("offset",), 7))], (0, HIGHEST)),
    ([EqualTo(("queue",), "a"), EqualTo(("properties", "offset"), 1)], (0, HIGHEST)),
])
def test_offsets_that_may_match(filters, bounds):
    found = Span(filters, "offset")

    assert (found.first, found.last) == bounds


def test_a_piece_matches_when_one_of_its_offsets_does():
    piece = Piece("s", "e", 1, 0, 128, 0, 999, 10, 20)

    assert [
        offset for offset in range(30)
        if Bounds([EqualTo(("offset",), offset)]).may_match(piece, Segment(1, 0, 30, 999, 0, 0))
    ] == list(range(10, 20))


@pytest.mark.parametrize("moved_ms, kind, matches", [
    (0, EqualTo, True), (-1, EqualTo, False), (11, EqualTo, False), (10, GreaterThanOrEqual, True),
    (11, GreaterThan, False), (-1, LessThan, False), (0, LessThanOrEqual, True),
])
def test_a_segment_matches_by_its_times_only_where_that_is_asked_for(moved_ms, kind, matches):
    """Of a segment whose messages came from AT to 10 ms later."""
    piece, segment = Piece("s", "e", 1, 0, 128, 0, 999, 0, 5), Segment(1, 0, 5, 999, AT_MS, AT_MS + 10)
    filters = [kind(("timestamp",), AT + timedelta(milliseconds=moved_ms))]

    assert Bounds(filters, with_times=True).may_match(piece, segment) == matches
    assert Bounds(filters).may_match(piece, segment)


def test_moments_are_utc_where_they_do_not_say():
    assert milliseconds(AT) == AT_MS == milliseconds(AT.replace(tzinfo=None))
