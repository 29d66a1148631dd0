"""Reading without Spark: the octets of a stream's files as batches of rows, damaged or not, in chunks of any
size.
"""
import json
import logging
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from gomq_py.content.properties import Properties
from gomq_py.spark import rows
from gomq_py.spark.errors import DataLoss, NoStream, OptionError
from gomq_py.spark.files_transport import FilesTransport, folder_id
from gomq_py.spark.offsets import Position
from gomq_py.spark.options import Options
from gomq_py.spark.planning import Planner
from gomq_py.spark.reading import PieceReader
from gomq_py.storage.disk.data_dir import queue_id
from tests.support import crossing
from tests.support.stores import INCARNATION
from tests.support.streams import StreamBench

COLUMNS = tuple(rows.DDL)


class Read:
    """One reading of the stream ``orders`` from its files."""

    def __init__(self, folder, columns=COLUMNS, first=None, until=None, **given):
        options = Options({"subscribe": "orders", "transport": "files", "dataDir": folder, **given})
        planner = Planner(options, FilesTransport(options))
        shapes = planner.shapes()
        starts, ends = planner.starts(shapes, "earliest"), planner.ends(shapes)
        self.pieces = planner.pieces("orders", shapes["orders"], starts["orders"], ends["orders"])
        self.reader = PieceReader(options, planner.transport, columns)
        self.batches = list(self.reader.batches(self.pieces))
        self.rows = (
            pa.Table.from_batches(self.batches, self.batches[0].schema).to_pylist() if self.batches else []
        )

    @property
    def offsets(self):
        return [row["offset"] for row in self.rows]


def test_rows_are_the_messages_in_order(data_dir):
    folder, bench = data_dir()
    bench.push(3000)  # three segments

    read = Read(folder)

    assert len(read.pieces) == 3
    assert [
        (row["offset"], row["body"], row["queue"], row["vhost"], row["routing_key"], row["exchange"])
        for row in read.rows
    ] == [
        (number, b"%d" % number, "orders", "/", "s", "") for number in range(3000)]
    assert {row["epoch"] for row in read.rows} == {INCARNATION.hex()}
    assert read.rows[17]["timestamp"] == datetime.fromtimestamp((bench.epoch_ms + 17) / 1000, UTC)


def test_rows_of_what_came_over_mqtt_have_its_properties_and_headers(data_dir):
    """Beside rows of AMQP, and of content that nobody can read."""
    folder, bench = data_dir()
    bench.push(1)
    values = {"content_type": "text/plain", "response_topic": "answers/1", "user_property": [("unit", "°C")]}
    for message in (
        crossing.stored("sensors/v1.2/t", values, qos=1), crossing.stored("a", block=b"\x03\x00\x09t"),
    ):
        bench.store.append(message)
    bench.store.write_out()
    bench.push(1)

    found = Read(folder).rows

    assert [row["routing_key"] for row in found] == ["s", "sensors.v1/2.t", "a", "s"]
    properties = [row["properties"] for row in found]
    assert [(each["content_type"], each["reply_to"], each["delivery_mode"]) for each in properties[1:3]] == [
        ("text/plain", "amq.topic.answers.1", 2), (None, None, None)]
    headers = {key: json.loads(value) for key, value in found[1]["headers"]}
    assert (headers["mqtt.topic"], headers["unit"]) == ("sensors/v1.2/t", "°C")
    assert not found[2]["headers"] and found[2]["body"] == b"body"


@pytest.mark.parametrize("given", [
    {"batchRows": "1"}, {"batchRows": "300"}, {"batchBytes": "1"}, {"batchBytes": "1000"},
    {"batchBytes": "64k", "batchRows": "10"},
])
def test_rows_do_not_depend_on_the_size_of_batches(data_dir, given):
    folder, bench = data_dir()
    bench.push(400)
    bench.push(3, body=b"large" * 2000)

    assert Read(folder, **given).rows == Read(folder).rows
    assert len(Read(folder, **given).batches) > 1


def test_only_what_lies_between_start_and_end_is_read(data_dir):
    folder, bench = data_dir()
    bench.push(3000)

    assert Read(folder, startingOffsets="1100", endingOffsets="1300").offsets == list(range(1100, 1300))
    assert Read(folder, startingTimestamp=str(bench.epoch_ms + 2990)).offsets == list(range(2990, 3000))
    assert Read(folder, startingOffsets="5", endingOffsets="5").rows == []


def test_the_parts_of_a_divided_segment_give_every_message_once(data_dir):
    folder, bench = data_dir()
    bench.push(900)
    options = Options({"subscribe": "orders", "transport": "files", "dataDir": folder, "minPartitions": "4"})
    planner = Planner(options, FilesTransport(options))
    pieces = Read(folder).pieces
    groups = planner.partitions(pieces)

    # Backwards, because a worker remembers how far it has read.
    parts = [
        [
            row["offset"]
            for batch in PieceReader(options, planner.transport, ("offset",)).batches(group)
            for row in batch.to_pylist()
        ]
        for group in reversed(groups)
    ]

    assert len(pieces) == 1 and [len(part) for part in parts] == [225] * 4
    assert sorted(offset for part in parts for offset in part) == list(range(900))


@pytest.mark.parametrize("place", ["body", "header"])
def test_damage_is_told_by_the_part_that_it_lies_in_alone(data_dir, place):
    folder, bench = data_dir()
    bench.push(900)
    bench.damage({300}, place)
    options = Options({"subscribe": "orders", "transport": "files", "dataDir": folder, "minPartitions": "2"})
    planner = Planner(options, FilesTransport(options))
    shape = planner.transport.describe("orders")
    first, second = planner.partitions(planner.pieces(
        "orders", shape, Position(shape.epoch, 0), Position(shape.epoch, 900)))

    assert sum(
        batch.num_rows for batch in PieceReader(options, planner.transport, COLUMNS).batches(second)
    ) == 450
    with pytest.raises(DataLoss, match="offset 300"):
        list(PieceReader(options, planner.transport, COLUMNS).batches(first))


def test_columns_are_those_that_were_asked_for(data_dir):
    folder, bench = data_dir()
    bench.push(5)

    read = Read(folder, columns=("body", "offset"))

    assert read.batches[0].schema == pa.schema([("body", pa.binary()), ("offset", pa.int64())])
    assert read.rows[3] == {"body": b"3", "offset": 3}


def test_properties_and_headers_are_those_that_were_published(data_dir):
    folder, bench = data_dir()
    given = Properties(
        content_type="text/plain",
        headers={"n": 1, "text": "a", "list": [1, "x"], "octets": b"\xff", "none": None}, delivery_mode=2,
        priority=7, message_id="m-1", timestamp=1700000000, app_id="shop")
    bench.message.assign(b"ex", b"key", given.encode(), b"body", bench.epoch_ms, persistent=True)
    bench.store.append(bench.message)
    bench.message.assign(b"", b"\xff\xfe", b"\0\0", b"", bench.epoch_ms, persistent=True)
    bench.store.append(bench.message)
    bench.store.write_out()

    first, second = Read(folder).rows

    assert {name: value for name, value in first["properties"].items() if value is not None} == {
        "content_type": "text/plain", "delivery_mode": 2, "priority": 7, "message_id": "m-1",
        "app_id": "shop",
        "timestamp": datetime.fromtimestamp(1700000000, UTC)}
    assert dict(first["headers"]) == {
        "n": "1", "text": '"a"', "list": '[1, "x"]', "octets": '"\\ufffd"', "none": "null"
    }
    assert second["headers"] is None and not any(second["properties"].values())
    assert second["routing_key"] == "\ufffd\ufffd"


@pytest.mark.parametrize("place", ["body", "header"])
@pytest.mark.parametrize("given", [{}, {"batchBytes": "300"}])
def test_a_damaged_record_is_told_with_stream_segment_and_position(data_dir, place, given):
    folder, bench = data_dir()
    bench.push(50)
    bench.damage({7}, place)

    with pytest.raises(
        DataLoss, match=r"stream 'orders' lacks offset 7: .* position \d+ of segment 1 of stream 'orders'"
    ):
        Read(folder, endingOffsets="50", **given)


@pytest.mark.parametrize("place", ["body", "header"])
@pytest.mark.parametrize("given", [{}, {"batchBytes": "300"}])
def test_a_damaged_record_may_be_gone_on_without(data_dir, caplog, place, given):
    folder, bench = data_dir()
    bench.push(1500)  # the first segment is sealed
    bench.damage({0, 7, 8, 30, 1200}, place)

    with caplog.at_level(logging.WARNING):
        read = Read(folder, failOnDataLoss="false", endingOffsets="1000", **given)

    assert read.offsets == [number for number in range(1000) if number not in (0, 7, 8, 30)]
    assert read.reader.lost == 4
    assert "lacks" in caplog.text


def test_a_batch_goes_on_in_a_segment_where_the_one_before_ended(data_dir):
    folder, bench = data_dir(segment_bytes=8 << 20)
    bench.push(5000)

    class Counted(FilesTransport):
        read = 0

        def octets_into(self, *arguments):
            for came in FilesTransport.octets_into(self, *arguments):
                self.read += came
                yield came

    found = []
    options = Options({"subscribe": "orders", "transport": "files", "dataDir": folder, "batchBytes": "2000"})
    transport = Counted(options)
    planner = Planner(options, transport)
    shape = planner.transport.describe("orders")
    for begin in range(0, 5000, 100):
        start, stop = Position(shape.epoch, begin), Position(shape.epoch, begin + 100)
        batches = PieceReader(options, transport, ("offset",)).batches(
            planner.pieces("orders", shape, start, stop)
        )
        found += [offset for batch in batches for offset in batch.column(0).to_pylist()]

    assert found == list(range(5000))
    # Without what it remembers it would be 20 times as much.
    assert transport.read < 3 * sum(part.bytes for part in shape.segments)


def test_a_segment_that_was_cut_short_is_told(data_dir):
    folder, bench = data_dir(enabled=True)
    bench.push(1500)
    bench.store.close()
    bench.sync()
    path = bench.folder / "stream" / "msgs.0000000001"
    content = path.read_bytes()
    path.write_bytes(content[:40000])

    with pytest.raises(DataLoss, match="segment 1 ends before them"):
        Read(folder, endingOffsets="1000")
    assert len(Read(folder, endingOffsets="1000", failOnDataLoss="false").offsets) > 100


def test_a_segment_whose_head_is_spoiled_is_told(data_dir):
    folder, bench = data_dir()
    bench.push(1500)
    read = Read(folder)
    path = bench.folder / "stream" / "msgs.0000000001"
    content = bytearray(path.read_bytes())
    content[33] ^= 1
    path.write_bytes(content)

    with pytest.raises(DataLoss, match="segment 1 is gone|head of the segment does not check"):
        list(read.reader.batches(read.pieces))


def test_a_segment_that_retention_took_after_planning_is_told_or_gone_on_without(data_dir):
    folder, bench = data_dir()
    bench.push(3000)
    options = Options({"subscribe": "orders", "transport": "files", "dataDir": folder})
    lenient = Options(
        {"subscribe": "orders", "transport": "files", "dataDir": folder, "failOnDataLoss": "false"}
    )
    read = Read(folder)
    (bench.folder / "stream" / "msgs.0000000001").unlink()

    with pytest.raises(DataLoss, match="its segment 1 is gone"):
        list(PieceReader(options, FilesTransport(options), ("offset",)).batches(read.pieces))
    reader = PieceReader(lenient, FilesTransport(lenient), ("offset",))
    found = [offset for batch in reader.batches(read.pieces) for offset in batch.column(0).to_pylist()]
    assert found == list(range(read.pieces[1].first, 3000)) and reader.lost == read.pieces[1].first


def test_of_a_live_folder_only_what_was_flushed_is_read(data_dir, tmp_path):
    import os
    import socket
    folder, bench = data_dir()
    bench.push(10)
    (tmp_path / "data" / ".lock").write_text(f"PID {os.getpid()} @ {socket.gethostname()}\n")

    assert Read(folder).rows == []

    (tmp_path / "data" / ".lock").write_text("PID 1 @ elsewhere\nstopped\n")
    assert len(Read(folder).rows) == 10


def test_a_queue_or_nothing_at_all_is_no_stream(data_dir, tmp_path):
    folder, bench = data_dir()
    with pytest.raises(NoStream, match="no readable segment"):
        Read(folder).rows
    bench.push(1)
    (tmp_path / "bench" / "stream" / "acks.0000000001").touch()
    with pytest.raises(NoStream, match="is a queue, no stream"):
        Read(folder)


@pytest.mark.parametrize("names, types, words", [
    (["offset", "size"], ["bigint", "int"], "column 'size'"),
    (["offset"], ["int"], "as int, and it is bigint"),
    (["body", "body"], ["binary", "binary"], "twice"),
])
def test_a_schema_that_does_not_fit_is_told(names, types, words):
    with pytest.raises(OptionError, match=words):
        rows.check_projection(names, types)


def test_clocks_that_step_back_change_no_offset(data_dir):
    """A time finds the first message that came at it or later by the clock of then;
    offsets are in the order of arrival.
    """
    folder, bench = data_dir()
    bench.push(10)
    bench.epoch_ms -= 3_600_000
    bench.push(10)
    bench.epoch_ms += 7_200_000
    bench.push(10)
    first_ms = StreamBench.epoch_ms

    assert Read(folder).offsets == list(range(30))
    assert Read(folder, startingTimestamp=str(first_ms + 5)).offsets == list(range(5, 30))
    assert Read(folder, startingTimestamp=str(first_ms + 100)).offsets == list(range(20, 30))
    assert Read(folder, startingTimestamp=str(first_ms - 3_600_000)).offsets == list(range(30))


@pytest.mark.parametrize("vhost, name", [("/", "orders"), ("v", "\u00e9/.."), ("", "")])
def test_the_folder_of_a_stream_is_called_as_the_broker_calls_it(vhost, name):
    assert folder_id(vhost, name) == queue_id(vhost, name)


def test_the_bench_writes_streams_as_the_broker_does(tmp_path):
    bench = StreamBench(tmp_path)
    bench.push(1)

    assert bench.files_there() == ["msgs.0000000001"]
