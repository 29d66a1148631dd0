"""The transport amqp: what consumers see of a stream, as rows; at gomq-py and at Debian's RabbitMQ."""
import io
import threading
from datetime import UTC, datetime

import pytest

from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from gomq_py.pipeline.jobs import bronze
from gomq_py.pipeline.running import Reporter, run
from gomq_py.spark import rows
from gomq_py.spark.amqp_transport import AmqpTransport
from gomq_py.spark.delivered import DeliveryReader
from gomq_py.spark.errors import DataLoss, NoStream, Refused, Unreachable
from gomq_py.spark.offsets import decode, encode
from gomq_py.spark.options import Credentials, Options
from gomq_py.spark.planning import Planner
from gomq_py.spark.progress import Progress
from tests.spark.conftest import PERSISTENT, allow
from tests.spark.sessions import PATIENT
from tests.support.rabbitmq_process import RabbitMQProcess
from tests.support.waiting import TIMEOUT_S

COLUMNS = tuple(rows.DDL)
RABBITMQ = pytest.mark.needs_program("rabbitmq-server")


class Place:
    """A broker that has streams, and what is read from it."""

    def __init__(self, url):
        self.url = url
        self.amqp_url = "amqp://" + url.partition("@")[2].rstrip("/")

    def stream(self, name, bodies=(), properties=PERSISTENT):
        with Connection(self.url, heartbeat_s=0, timeout_s=TIMEOUT_S) as connection:
            connection.channel().queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        self.publish(name, bodies, properties)

    def publish(self, queue, bodies, properties=PERSISTENT):
        with Connection(self.url, heartbeat_s=0, timeout_s=TIMEOUT_S) as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.publish_many(("", queue, body, properties) for body in bodies)
            assert channel.wait_for_confirms()

    def delete(self, name):
        with Connection(self.url, heartbeat_s=0, timeout_s=TIMEOUT_S) as connection:
            connection.channel().queue_delete(name)

    def options(self, name, **given):
        return Options({
            "subscribe": name, "transport": "amqp", "amqpUrl": self.amqp_url, "retrySeconds": "0",
            "timeoutSeconds": PATIENT, **given,
        })

    def transport(self, name, password="guest", **given):
        return AmqpTransport(self.options(name, **given), Credentials("guest", password))

    def read(self, name, columns=COLUMNS, **given):
        """Rows as dicts."""
        options = self.options(name, **given)
        planner = Planner(options, self.transport(name, **given))
        shapes = planner.shapes()
        pieces = planner.pieces(
            name, shapes[name], planner.starts(shapes, "earliest")[name], planner.ends(shapes)[name]
        )
        found = [
            row for group in planner.partitions(pieces)
            for batch in DeliveryReader(options, planner.transport, columns).batches(group)
            for row in batch.to_pylist()
        ]
        planner.transport.close()
        return found


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory):
    """Debian's."""
    with RabbitMQProcess(tmp_path_factory.mktemp("rabbitmq")) as node:
        yield Place(node.amqp_url)


@pytest.fixture(params=["gomq-py", pytest.param("rabbitmq", marks=RABBITMQ)])
def place(request, broker):
    """Both, one after the other."""
    if request.param == "rabbitmq":
        return request.getfixturevalue("rabbitmq")
    return Place(broker.child.amqp_url)


def test_rows_are_the_messages_in_order_whatever_the_batches(place):
    place.stream("in-order", [b"%d" % number for number in range(5000)])

    found = place.read("in-order", batchRows="300")

    assert [(row["offset"], row["body"]) for row in found] == [
        (number, b"%d" % number) for number in range(5000)
    ]
    assert (found[7]["queue"], found[7]["vhost"], found[7]["exchange"], found[7]["routing_key"]) == (
        "in-order", "/", "", "in-order")
    assert found[7]["properties"]["delivery_mode"] == 2 and found[7]["headers"] is None
    assert found[7]["timestamp"] is None
    some = place.read("in-order", ("offset",), startingOffsets="4711", endingOffsets="4800")
    assert [row["offset"] for row in some] == list(range(4711, 4800))


def test_several_tasks_share_a_stream(place, monkeypatch):
    monkeypatch.setattr("gomq_py.spark.amqp_transport.SEGMENT_ROWS", 400)
    place.stream("shared", [b"x"] * 1000)

    found = place.read("shared", ("offset",), minPartitions="7")

    assert sorted(row["offset"] for row in found) == list(range(1000))


def test_properties_headers_and_the_time_that_somebody_noted_are_kept(place):
    given = Properties(
        content_type="text/plain", message_id="m-1", priority=3, timestamp=1700000000,
        headers={"n": 1, "timestamp_in_ms": 1700000000123},
    )
    place.stream("noted", [b"a"], given.encode())
    place.publish("noted", [b"b"], Properties(timestamp=1700000001, headers={"text": "\u00e9"}).encode())

    first, second = place.read("noted")

    assert first["timestamp"] == datetime.fromtimestamp(1700000000.123, UTC)
    assert second["timestamp"] == datetime.fromtimestamp(1700000001, UTC)
    assert {key: value for key, value in first["properties"].items() if value is not None} == {
        "content_type": "text/plain", "message_id": "m-1", "priority": 3,
        "timestamp": datetime.fromtimestamp(1700000000, UTC)}
    assert (first["headers"], second["headers"]) == (
        [("n", "1"), ("timestamp_in_ms", "1700000000123")], [("text", '"\\u00e9"')])


def test_batches_cover_what_comes_once_and_another_stream_of_the_name_is_noticed(place):
    place.stream("renewed elsewhere", [b"%d" % number for number in range(50)])
    options = place.options("renewed elsewhere", maxOffsetsPerTrigger="30")
    transport = place.transport("renewed elsewhere")
    planner = Planner(options, transport)
    progress = Progress(options, planner)
    start, seen, epochs = planner.starts(planner.shapes(), "earliest"), [], []

    def advance():
        nonlocal start
        end = decode(encode(progress.next_end(start, True)))
        pieces = progress.pieces(start, end)
        start = end
        rows = [
            row for batch in DeliveryReader(options, transport, ("body", "epoch")).batches(pieces)
            for row in batch.to_pylist()
        ]
        epochs.extend(row["epoch"] for row in rows)
        return [row["body"] for row in rows]
    while batch := advance():
        seen += batch
    place.publish("renewed elsewhere", [b"50"])
    seen += advance()
    place.delete("renewed elsewhere")
    place.stream("renewed elsewhere", [b"new %d" % number for number in range(60)])

    with pytest.raises(DataLoss, match="deleted and declared again since it was read up to offset 51"):
        advance()
    options = place.options("renewed elsewhere", failOnDataLoss="false")
    planner = Planner(options, transport)
    progress = Progress(options, planner)
    again = advance()

    assert seen == [b"%d" % number for number in range(51)]
    assert again == [b"new %d" % number for number in range(60)]
    assert advance() == []
    place.publish("renewed elsewhere", [b"last"])
    assert advance() == [b"last"]
    assert epochs == [""] * 51 + ["1"] * 61
    transport.close()


def test_an_empty_stream_has_no_rows_and_is_no_loss(place):
    place.stream("empty")

    assert place.read("empty") == []
    options = place.options("empty")
    progress = Progress(options, Planner(options, place.transport("empty")))
    start = decode({"v": 1, "streams": {"empty": {"epoch": "", "next": 7, "mark": "00"}}})
    assert progress.next_end(start, False) == start


def test_what_is_no_stream_is_said_and_keeps_its_messages(place):
    with Connection(place.url, heartbeat_s=0) as connection:
        connection.channel().queue_declare("plain", durable=True)
    place.publish("plain", [b"a", b"b"])

    with pytest.raises(NoStream, match="'plain' in vhost '/' at .* is no stream"):
        place.read("plain")
    with pytest.raises(NoStream, match="there is no stream 'nowhere' in vhost '/' at amqp"):
        place.read("nowhere")
    with Connection(place.url, heartbeat_s=0) as connection:
        channel = connection.channel()
        assert {channel.get("plain", no_ack=True).body for _ in range(2)} == {b"a", b"b"}


def test_who_may_not_come_in_and_who_is_not_there_are_said(place):
    with pytest.raises(Refused, match="does not let user 'guest' in .*GOMQ_PASSWORD"):
        place.transport("any", password="wrong").describe("any")
    with pytest.raises(Unreachable, match="option amqpUrl.*"):
        place.transport("any", amqpUrl="amqp://127.0.0.1:1").describe("any")


def test_offsets_that_are_not_kept_are_told_or_gone_on_without(place, monkeypatch, caplog):
    """As where retention was faster than the task."""
    place.stream("dropped", [b"%d" % number for number in range(20)])
    given = AmqpTransport.deliveries
    monkeypatch.setattr(AmqpTransport, "deliveries", lambda self, name, start: given(self, name, start + 5))

    with pytest.raises(DataLoss, match="stream 'dropped' lacks offsets 0 to 4: retention"):
        place.read("dropped")
    assert [row["offset"] for row in place.read("dropped", failOnDataLoss="false")] == list(range(5, 20))
    assert "lacks offsets 0 to 4" in caplog.text


def test_a_stream_that_is_deleted_while_it_is_read_is_told(place, monkeypatch):
    monkeypatch.setattr("gomq_py.spark.amqp_transport.PREFETCH", 100)
    place.stream("short-lived", [b"x"] * 1000)
    came = place.transport("short-lived").deliveries("short-lived", 0)
    next(came)
    place.delete("short-lived")

    with pytest.raises(NoStream, match="short-lived"):
        for _ in came:
            pass


def test_a_broker_that_is_killed_in_the_middle_is_waited_for(tmp_path, monkeypatch):
    from gomq_py.testing.brokers import ChildBroker
    monkeypatch.setattr("gomq_py.spark.amqp_transport.PREFETCH", 100)
    with ChildBroker(tmp_path / "data", sync=True) as child:
        here = Place(child.amqp_url)
        here.stream("log", [b"%d" % number for number in range(1000)])
        came = here.transport("log", retrySeconds=PATIENT).deliveries("log", 0)
        found = [next(came)]
        child.kill()
        starter = threading.Thread(target=child.start)
        starter.start()
        while len(found) < 1000:
            found.append(next(came))
        came.close()
        starter.join()

    assert [(offset, one.body) for offset, one in found] == [
        (number, b"%d" % number) for number in range(1000)
    ]


def test_a_user_who_may_read_and_nothing_else_reads(broker):
    allow(broker, "amqp-reader", "^readable$")
    here = Place(broker.child.amqp_url)
    here.stream("readable", [b"x"])
    here.stream("secret", [b"x"])

    def described(name):
        return AmqpTransport(here.options(name), Credentials("amqp-reader", "amqp-reader")).describe(name)

    assert described("readable").end_offset == 1
    with pytest.raises(Refused, match="user 'amqp-reader' may not read stream 'secret'"):
        described("secret")


@RABBITMQ
def test_bronze_takes_every_message_of_another_broker_once(spark, rabbitmq, tmp_path):
    rabbitmq.stream("to-spark", [b"%d" % number for number in range(300)])
    reading = {
        "transport": "amqp", "amqpUrl": rabbitmq.amqp_url, "subscribe": "to-spark",
        "maxOffsetsPerTrigger": "200",
    }

    for run_ in range(2):
        run(bronze.writers(spark, reading, str(tmp_path / "out")), reporter=Reporter(io.StringIO()))
        rabbitmq.publish("to-spark", [b"%d" % number for number in range(300, 350)])

    found = spark.read.parquet(str(tmp_path / "out")).select("offset", "body", "date").collect()
    assert sorted((row.offset, row.body) for row in found) == [
        (number, b"%d" % number) for number in range(350)
    ]
    assert all(row.date is not None for row in found)
