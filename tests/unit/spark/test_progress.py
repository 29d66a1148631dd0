"""Progress and planning: how far a batch goes, what lies between two offsets, and what is told when some of
it is gone.
"""
import time

import pytest

from gomq_py.spark.errors import DataLoss, NoStream, OptionError
from gomq_py.spark.offsets import Position, behind, decode, encode
from gomq_py.spark.options import Options
from gomq_py.spark.planning import Planner
from gomq_py.spark.progress import Progress, shares
from gomq_py.spark.transport import Segment, Shape
from tests.support.waiting import in_time

ROW = 100


class Streams:
    """A transport with streams of made-up segments: {name: (epoch, first offsets of segments..., end)}."""

    def __init__(self, **streams):
        self.streams = streams

    def names(self):
        return sorted(self.streams)

    def describe(self, name):
        if name not in self.streams:
            raise NoStream(f"no {name}")
        epoch, *bounds = self.streams[name]
        parts = tuple(
            Segment(number, first, end, 128 + ROW * (end - first), 1000 * first, 1000 * end)
            for number, (first, end) in enumerate(zip(bounds, bounds[1:], strict=False), 1))
        return Shape(epoch, bounds[0], bounds[-1], parts)

    def mark(self, name, offset):
        return ""

    def offset_for_timestamp(self, name, timestamp_ms):
        return timestamp_ms // 1000


def made(streams, **given):
    options = Options({"subscribe": ",".join(streams.streams), **given})
    planner = Planner(options, streams)
    return planner, Progress(options, planner)


def nexts(positions):
    return {name: position.next for name, position in positions.items()}


def spans(pieces):
    return [(piece.stream, piece.number, piece.first, piece.until) for piece in pieces]


def test_a_batch_goes_to_the_end():
    planner, progress = made(Streams(a=("e", 0, 10, 25)))
    start = planner.starts(planner.shapes(), "earliest")

    end = progress.next_end(start, False)

    assert (nexts(start), nexts(end)) == ({"a": 0}, {"a": 25})
    assert spans(progress.pieces(start, end)) == [("a", 1, 0, 10), ("a", 2, 10, 25)]


def test_nothing_new_gives_the_very_same_offset_again():
    planner, progress = made(Streams(a=("e", 0, 10)))
    end = progress.next_end(planner.starts(planner.shapes(), "earliest"), False)
    checkpoint = encode(end)

    assert encode(progress.next_end(decode(checkpoint), False)) == checkpoint
    assert progress.pieces(end, end) == []


def test_the_next_batch_reads_no_octet_twice():
    streams = Streams(a=("e", 0, 10))
    planner, progress = made(streams)
    first = progress.next_end(planner.starts(planner.shapes(), "earliest"), False)
    streams.streams["a"] = ("e", 0, 14, 20)
    second = progress.next_end(decode(encode(first)), False)

    pieces = progress.pieces(first, second)

    assert spans(pieces) == [("a", 1, 10, 14), ("a", 2, 14, 20)]
    assert [(piece.at, piece.at_offset, piece.end) for piece in pieces] == [
        (128 + 10 * ROW, 10, 128 + 14 * ROW), (128, 14, 128 + 6 * ROW)
    ]


@pytest.mark.parametrize("limit", [1, 7, 10, 24])
def test_limited_batches_cover_everything_once(limit):
    planner, progress = made(Streams(a=("e", 0, 10, 25), b=("f", 3, 5)), maxOffsetsPerTrigger=str(limit))
    start = planner.starts(planner.shapes(), "earliest")
    seen = []
    while (end := progress.next_end(start, True)) != start:
        batch = [
            (piece.stream, offset)
            for piece in progress.pieces(start, end) for offset in range(piece.first, piece.until)
        ]
        assert 0 < len(batch) <= limit
        seen += batch
        start = decode(encode(end))

    assert sorted(seen) == [("a", offset) for offset in range(25)] + [("b", 3), ("b", 4)]


def test_a_limited_batch_ends_with_a_segment_where_one_ends_in_its_second_half():
    planner, progress = made(Streams(a=("e", 0, 30, 60, 400)), maxOffsetsPerTrigger="50")
    start, ends = planner.starts(planner.shapes(), "earliest"), []
    for _ in range(3):
        start = progress.next_end(start, True)
        ends.append(start["a"].next)

    assert ends == [30, 60, 110]


def test_a_batch_of_limited_octets_takes_at_least_one_row_and_about_as_many_as_fit():
    planner, progress = made(Streams(a=("e", 0, 1000)), maxBytesPerTrigger="1000")
    start = planner.starts(planner.shapes(), "earliest")

    assert 8 <= progress.next_end(start, True)["a"].next <= 10
    assert made(Streams(a=("e", 0, 1000)), maxBytesPerTrigger="1")[1].next_end(start, True)["a"].next == 1


def test_a_batch_waits_for_enough_messages_and_no_longer_than_the_delay():
    streams, now = Streams(a=("e", 0, 3), b=("f", 0, 1)), [100.0]
    planner, progress = made(streams, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    progress = Progress(planner.options, planner, lambda: now[0])
    start = planner.starts(planner.shapes(), "earliest")

    first = progress.next_end(start, True)
    assert nexts(first) == {"a": 3, "b": 1}  # nothing was there before: no reason to wait
    assert progress.next_end(first, True) == first

    streams.streams["a"] = ("e", 0, 12)
    now[0] += 29.9
    assert progress.next_end(first, True) == first
    assert progress.metrics()["maxOffsetsBehindLatest"] == 9

    streams.streams["b"] = ("f", 0, 2)
    second = progress.next_end(first, True)
    assert nexts(second) == {"a": 12, "b": 2}  # ten are enough

    streams.streams["b"] = ("f", 0, 3)
    now[0] += 29.9
    assert progress.next_end(second, True) == second
    now[0] += 0.2
    assert nexts(progress.next_end(second, True)) == {"a": 12, "b": 3}


def test_a_run_for_what_is_there_does_not_wait_for_more():
    streams = Streams(a=("e", 0, 3))
    planner, progress = made(streams, minOffsetsPerTrigger="10")
    start = planner.starts(planner.shapes(), "earliest")
    progress.next_end(start, True)
    progress.fix_target()

    assert nexts(progress.next_end(start, True)) == {"a": 3}


def test_how_far_a_batch_is_behind_is_told_by_kafkas_names():
    planner, progress = made(
        Streams(a=("e", 0, 10), b=("f", 0, 30), c=("g", 5, 5)), maxOffsetsPerTrigger="20")
    assert progress.metrics() == {}

    end = progress.next_end(planner.starts(planner.shapes(), "earliest"), True)

    assert nexts(end) == {"a": 5, "b": 15, "c": 5}
    assert progress.metrics() == {
        "avgOffsetsBehindLatest": 20 / 3, "maxOffsetsBehindLatest": 15, "minOffsetsBehindLatest": 0}


def test_a_stream_that_was_made_anew_is_behind_with_all_its_messages():
    seen = {"a": Position("f", 3), "b": Position("g", 2)}

    assert behind({"a": Position("e", 7)}, seen, {"a": 0, "b": 0}) == {"a": 3, "b": 2}


@pytest.mark.parametrize("now", [
    {"a": ("e", 0, 10), "b": ("g", 1000, 1003)},  # new
    {"a": ("other", 1000, 1003)},
    {"a": ("e", 1000, 1003)},  # older messages were dropped
])
def test_offsets_before_the_first_message_are_not_behind(now):
    streams = Streams(a=("e", 0, 10))
    options = Options(
        {"subscribePattern": ".", "minOffsetsPerTrigger": "5", "failOnDataLoss": "false"})
    progress = Progress(options, Planner(options, streams))
    start = progress.next_end({"a": Position("e", 0)}, True)
    streams.streams = now

    assert progress.next_end(start, True) == start  # three are too few
    assert progress.metrics()["maxOffsetsBehindLatest"] == 3


def test_a_run_for_what_is_there_stops_at_what_was_there():
    streams = Streams(a=("e", 0, 10))
    planner, progress = made(streams)
    start = planner.starts(planner.shapes(), "earliest")
    progress.fix_target()
    streams.streams = {"a": ("e", 0, 30), "b": ("g", 0, 5)}

    end = progress.next_end(start, False)

    assert nexts(end) == {"a": 10}
    assert progress.next_end(end, False) == end


def test_a_stream_that_a_pattern_meets_later_is_read_from_its_first_message():
    streams = Streams(a=("e", 0, 10))
    options = Options({"subscribePattern": "[ab]"})
    progress = Progress(options, Planner(options, streams))
    start = {"a": Position("e", 10)}
    streams.streams["b"] = ("g", 2, 7)
    streams.streams["c"] = ("h", 0, 9)

    end = progress.next_end(start, False)

    assert nexts(end) == {"a": 10, "b": 7}
    assert spans(progress.pieces(start, end)) == [("b", 1, 2, 7)]


@pytest.mark.parametrize("now, words", [
    (("e", 7, 20), "begins at offset 7 now, and 3 messages from 4 on were not read"),
    (("other", 0, 20), "deleted and declared again since it was read up to offset 4"),
    (("e", 0, 2), "read up to offset 4 and ends at 2"),
    (None, "is not there any more"),
])
def test_what_is_gone_is_told_or_gone_on_without(now, words, caplog):
    streams = Streams(a=("e", 0, 20))
    planner, progress = made(streams)
    lenient, lenient_progress = made(streams, failOnDataLoss="false")
    start = {"a": Position("e", 4)}
    streams.streams = {} if now is None else {"a": now}

    with pytest.raises(DataLoss, match=words) as told:
        progress.next_end(start, False)
    assert "failOnDataLoss" in str(told.value)

    end = lenient_progress.next_end(start, False)
    assert words in caplog.text
    if now is not None and now[-1] > 4:
        assert [piece.until for piece in lenient_progress.pieces(start, end)] == [20]
    else:
        assert lenient_progress.pieces(start, end) == []
        assert lenient_progress.next_end(end, False) == end


def test_offsets_between_two_segments_that_are_not_there_are_told():
    streams = Streams(a=("e", 0, 10, 20, 30))
    planner, _ = made(streams)
    shape = streams.describe("a")
    holed = Shape("e", 0, 30, (shape.segments[0], shape.segments[2]))

    with pytest.raises(DataLoss, match="lacks offsets 10 to 19"):
        planner.pieces("a", holed, Position("e", 0), Position("e", 30))


def test_starting_and_ending_offsets_are_what_the_options_say():
    shapes = Streams(a=("e", 5, 30), b=("f", 0, 10))
    planner, _ = made(shapes, startingOffsets='{"a": 12, "b": "latest"}', endingOffsets='{"a": 20}')
    timed, _ = made(shapes, startingTimestamp="7000", endingTimestamp="9000")

    assert nexts(planner.starts(planner.shapes(), "earliest")) == {"a": 12, "b": 10}
    assert nexts(planner.ends(planner.shapes())) == {"a": 20, "b": 10}
    assert nexts(timed.starts(timed.shapes(), "earliest")) == {"a": 7, "b": 7}
    assert nexts(timed.ends(timed.shapes())) == {"a": 9, "b": 9}


def test_each_stream_may_start_and_end_at_a_time_of_its_own():
    planner, _ = made(
        Streams(a=("e", 5, 30), b=("f", 0, 10), c=("g", 2, 4)),
        startingOffsetsByTimestamp='{"a": 7000, "b": {"0": 99000}}', endingOffsetsByTimestamp='{"a": 9000}')

    assert nexts(planner.starts(planner.shapes(), "earliest")) == {"a": 7, "b": 10, "c": 2}
    assert nexts(planner.ends(planner.shapes())) == {"a": 9, "b": 10, "c": 4}


def test_assigned_streams_are_read_like_subscribed_ones():
    planner = Planner(Options({"assign": '["a", "x,y"]'}), Streams(**{"a": ("e", 0, 3), "x,y": ("f", 0, 2)}))

    assert nexts(planner.ends(planner.shapes())) == {"a": 3, "x,y": 2}
    with pytest.raises(NoStream):
        Planner(Options({"assign": '["b"]'}), Streams()).shapes()


def test_a_start_behind_the_end_is_a_mistake_and_one_before_the_first_is_loss():
    with pytest.raises(OptionError, match="begins stream 'a' at 31, and it ends at 30"):
        planner, _ = made(Streams(a=("e", 5, 30)), startingOffsets="31")
        planner.starts(planner.shapes(), "earliest")
    with pytest.raises(DataLoss, match="begins at offset 5 now"):
        planner, _ = made(Streams(a=("e", 5, 30)), startingOffsets="3")
        planner.starts(planner.shapes(), "earliest")


def test_neighbouring_segments_are_one_task_up_to_the_limit():
    streams = Streams(a=("e", 0, 10, 20, 30, 40), b=("f", 0, 10))
    for given, sizes in (
        ({"partitionBytes": "2300"}, [2, 2, 1]), ({"partitionBytes": "1g"}, [4, 1]),
        ({"minPartitions": "5"}, [1] * 5),
    ):
        planner, progress = made(streams, **given)
        start = planner.starts(planner.shapes(), "earliest")
        assert [
            len(group)
            for group in planner.partitions(progress.pieces(start, progress.next_end(start, False)))
        ] == sizes


@pytest.mark.parametrize("most", [1, 3, 7, 10, 11, 1000])
def test_a_task_has_at_most_so_many_messages(most):
    planner, progress = made(
        Streams(a=("e", 0, 10, 12, 40), b=("f", 7, 17)), maxRecordsPerPartition=str(most))
    start = planner.starts(planner.shapes(), "earliest")

    groups = planner.partitions(progress.pieces(start, progress.next_end(start, False)))

    sizes = [sum(piece.until - piece.first for piece in group) for group in groups]
    assert max(sizes) <= most and len(groups) <= 4 + 50 // most
    read = [
        (piece.stream, offset)
        for group in groups for piece in group for offset in range(piece.first, piece.until)
    ]
    assert read == [("a", offset) for offset in range(40)] + [("b", offset) for offset in range(7, 17)]


def test_more_tasks_than_spark_can_keep_are_refused():
    planner, progress = made(Streams(a=("e", 0, 200_001)), maxRecordsPerPartition="2")
    start = planner.starts(planner.shapes(), "earliest")

    with pytest.raises(OptionError, match="makes 100001 tasks of a batch, and 100000 are the most"):
        planner.partitions(progress.pieces(start, progress.next_end(start, False)))


@pytest.mark.parametrize("tasks", [2, 3, 7, 40, 100])
def test_a_segment_is_divided_where_there_are_to_be_more_tasks_than_segments(tasks):
    planner, progress = made(Streams(a=("e", 0, 50), b=("f", 7, 17)), minPartitions=str(tasks))
    start = planner.starts(planner.shapes(), "earliest")

    groups = planner.partitions(progress.pieces(start, progress.next_end(start, False)))

    assert len(groups) == min(tasks, 60)
    read = [
        (piece.stream, offset)
        for group in groups for piece in group for offset in range(piece.first, piece.until)
    ]
    assert sorted(read) == [("a", offset) for offset in range(50)] + [
        ("b", offset) for offset in range(7, 17)
    ]


def test_as_many_tasks_as_are_asked_for_are_made_of_segments_of_different_sizes():
    planner, progress = made(Streams(a=("e", 0, 1, 2, 20)), minPartitions="3")
    start = planner.starts(planner.shapes(), "earliest")

    assert len(planner.partitions(progress.pieces(start, progress.next_end(start, False)))) == 3


def test_many_segments_and_tasks_are_planned_in_a_moment():
    streams = Streams(a=("e", *range(0, 10001)), b=("f", 0, 40000))
    planner, progress = made(streams, minPartitions="20000")
    start = planner.starts(planner.shapes(), "earliest")
    began = time.process_time()

    groups = planner.partitions(progress.pieces(start, progress.next_end(start, False)))

    assert time.process_time() - began < in_time(5)
    assert len(groups) == 20000
    pieces = [piece for group in groups for piece in group]
    for name, count in (("a", 10000), ("b", 40000)):
        mine = [piece for piece in pieces if piece.stream == name]
        assert [piece.first for piece in mine] == [0, *(piece.until for piece in mine[:-1])]
        assert mine[-1].until == count


def test_nothing_to_read_is_no_task():
    planner, _ = made(Streams(a=("e", 0, 10)), minPartitions="4")

    assert planner.partitions([]) == []


def test_shares_are_fair_and_never_more_than_the_limit():
    assert shares({"a": 1000, "b": 10, "c": 0}, 100) == {"c": 0, "b": 1, "a": 99}
    assert shares({"a": 3, "b": 3}, 1) == {"a": 1, "b": 0}
    assert shares({"a": 3, "b": 3}, 6) == {"a": 3, "b": 3}
