"""The jobs of gomq-py-pipeline in one session: devices' messages to tables,
dead letters counted and published again.
"""
import io
import json

import pytest
import requests

from gomq_py.pipeline.jobs import all_writers, bronze, dead_letters, queues, replay, telemetry
from gomq_py.pipeline.plan import make_plan
from gomq_py.pipeline.readings import make_schema
from gomq_py.pipeline.running import JobFailed, Reporter, run
from tests.spark.conftest import PERSISTENT
from tests.support.paho_client import PahoClient
from tests.support.waiting import TIMEOUT_S

SCHEMA = make_schema({
    "device": "topic:1", "fields": {"temperature": "double"},
    "windows": {"length": "1 minute", "watermark": "0 seconds"},
})


def declare(broker, stream, *keys):
    """A stream that takes what is published to amq.topic with these keys."""
    broker.stream(stream)
    with broker.connect() as connection:
        for key in keys:
            connection.channel().queue_bind(stream, "amq.topic", key)


def publish(broker, messages):
    """Publish (routing key, body) to amq.topic and wait for the confirms."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.publish_many(("amq.topic", key, body, PERSISTENT) for key, body in messages)
        assert channel.wait_for_confirms()


def lines(reporter_out):
    return [json.loads(line) for line in reporter_out.getvalue().splitlines()]


def test_bronze_takes_every_offset_once_over_several_runs(spark, broker, tmp_path):
    broker.stream("bronze-a", [b"%d" % number for number in range(700)])
    broker.stream("bronze-b", [b"%d" % number for number in range(50)])
    reading = {"url": broker.url, "subscribePattern": "bronze-.", "maxOffsetsPerTrigger": "500"}
    out = io.StringIO()

    run(bronze.writers(spark, reading, str(tmp_path / "bronze")), reporter=Reporter(out))
    broker.publish("bronze-a", [b"%d" % number for number in range(700, 800)])
    broker.stream("bronze-c", [b"new"])
    run(bronze.writers(spark, reading, str(tmp_path / "bronze")), reporter=Reporter(out))

    rows = spark.read.parquet(str(tmp_path / "bronze")).select("stream", "offset").collect()
    assert sorted((row.stream, row.offset) for row in rows) == sorted(
        [("bronze-a", number) for number in range(800)] + [("bronze-b", number) for number in range(50)]
        + [("bronze-c", 0)])
    assert [line["rows_total"] for line in lines(out) if line.get("done")] == [750, 101]
    assert [line["lag"] for line in lines(out) if not line.get("done")] == [250, 0, 0]
    assert bronze.compact(spark, str(tmp_path / "bronze"), str(tmp_path / "compact")) == 851


def test_devices_readings_dead_letters_and_their_replay(spark, broker, tmp_path):
    """Devices publish over MQTT to amq.topic, from where messages go to a stream and to a queue; the one
    becomes a table, what is in the other dies and comes back.
    """
    declare(broker, "job-devices", "dev.#")
    with broker.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("dlx", "fanout", durable=True)
        channel.queue_declare("work", durable=True, arguments={"x-dead-letter-exchange": "dlx"})
        channel.queue_declare("again", durable=True)
        channel.queue_bind("work", "amq.topic", "dev.d1.#")
    broker.stream("graveyard")
    with broker.connect() as connection:
        connection.channel().queue_bind("graveyard", "dlx")
    good = [(f"dev/d{number % 2}/up", b'{"temperature": %d}' % number) for number in range(40)]
    device = PahoClient(None, "gateway", port=broker.child.mqtt_port)
    for topic, body in [*good, ("dev/d0/up", b"no json"), ("dev/d0/up", b'{"temperature": "hot"}')]:
        device.publish(topic, body)
    device.close()
    with broker.connect() as connection:
        channel = connection.channel()
        while (one := channel.get("work")) is not None:
            channel.reject(one.delivery_tag, requeue=False)
    reading = {"url": broker.url, "subscribe": "job-devices"}

    run(telemetry.writers(spark, reading, SCHEMA, str(tmp_path / "tables")), reporter=Reporter(io.StringIO()))

    readings = spark.read.parquet(str(tmp_path / "tables" / "readings")).collect()
    assert sorted((row.device, row.temperature, row.offset) for row in readings) == sorted(
        (f"d{number % 2}", float(number), number) for number in range(40))
    quarantine = spark.read.parquet(str(tmp_path / "tables" / "quarantine")).orderBy("offset").collect()
    assert [(row.offset, bytes(row.body), row.error.partition(":")[0]) for row in quarantine] == [
        (40, b"no json", "no JSON"), (41, b'{"temperature": "hot"}', "field temperature is no double")]

    letters = dead_letters.rows(spark, {"url": broker.url, "subscribe": "graveyard"})
    summary, = dead_letters.summary(letters).collect()
    assert (summary.died_in, summary.reason, summary.messages, summary.most_deaths) == (
        "work", "rejected", 20, 1
    )
    assert [row.beginning for row in dead_letters.samples(letters, 2).collect()] == [
        '{"temperature": 39}', '{"temperature": 37}'
    ]

    chosen = replay.chosen(letters, "offset < 15")
    assert [row.asDict() for row in replay.counts(chosen).collect()] == [
        {
            "queue": "graveyard", "messages": 15, "octets": sum(len(body) for key, body in good[1::2][:15]),
            "first": 0, "last": 14,
        }]
    replay.publish(chosen, {"amqpUrl": broker.amqp_url, "queue": "again"}, rate=1000)
    again = broker.take("again")
    assert [one.body for one in again] == [body for key, body in good[1::2]][:15]
    assert not any("x-death" in (one.properties.headers or {}) for one in again)
    assert again[3].properties.message_id == "graveyard/3"


def test_a_queue_whose_messages_are_taken_becomes_a_table_by_its_tee(spark, broker, tmp_path):
    """The stream that the policy names is declared later than the queue,
    which has consumers all the while.
    """
    with broker.connect() as connection:
        connection.channel().queue_declare("teed", durable=True)
    requests.put(f"{broker.url}/api/policies/%2F/teed", auth=("guest", "guest"), timeout=TIMEOUT_S, json={
        "pattern": "^teed$", "definition": {"tee-to-stream": "teed-log"}}).raise_for_status()
    broker.stream("teed-log")
    reading = {"url": broker.url, "subscribe": "teed-log"}
    taken = []
    for run_ in range(2):
        broker.publish("teed", [b"%d" % number for number in range(100 * run_, 100 * run_ + 100)])
        taken += [one.body for one in broker.take("teed")]
        run(bronze.writers(spark, reading, str(tmp_path / "bronze")), reporter=Reporter(io.StringIO()))

    rows = spark.read.parquet(str(tmp_path / "bronze")).orderBy("offset").collect()
    assert taken == [b"%d" % number for number in range(200)]
    assert [(row.offset, row.routing_key, bytes(row.body)) for row in rows] == [
        (number, "teed", b"%d" % number) for number in range(200)]


def test_windows_are_written_when_the_watermark_has_passed(spark, broker, tmp_path):
    declare(broker, "windowed", "win.#")
    schema = make_schema({"device": "topic:1", "time": "field:ts", "fields": {"temperature": "double"},
                          "windows": {"length": "1 minute", "watermark": "0 seconds"}})
    publish(broker, [
        ("win.d1", b'{"ts": %d, "temperature": %d}' % (60000 * minute, minute)) for minute in (1, 1, 2, 9)
    ])
    reading = {"url": broker.url, "subscribe": "windowed"}

    run(telemetry.writers(spark, reading, schema, str(tmp_path / "tables")), reporter=Reporter(io.StringIO()))

    rows = spark.read.parquet(str(tmp_path / "tables" / "windows")).orderBy("start").collect()
    assert [(row.device, row.readings, row.temperature_avg, row.temperature_max) for row in rows] == [
        ("d1", 2, 1.0, 1.0), ("d1", 1, 2.0, 2.0)
    ]


def test_the_jobs_of_a_file_run_in_one_session(spark, broker, tmp_path):
    declare(broker, "planned", "plan.#")
    publish(broker, [("plan.d1", b'{"temperature": %d}' % number) for number in range(5)])
    given = {"source": {"url": broker.url}, "job": [
        {"kind": "bronze", "streams": "planned", "out": "bronze"},
        {"kind": "metrics", "streams": "planned", "out": "metrics"}]}
    out = io.StringIO()

    run(all_writers(spark, make_plan(given, str(tmp_path)).jobs), reporter=Reporter(out))

    assert spark.read.parquet(str(tmp_path / "bronze")).count() == 5
    assert [(line["job"], line["rows_total"]) for line in lines(out) if line.get("done")] == [
        ("bronze", 5), ("metrics", 5)
    ]


def test_samples_of_queues_are_a_table(spark, broker, tmp_path, monkeypatch):
    monkeypatch.setattr("gomq_py.spark.http_transport.QUEUES_AT_ONCE", 2)  # several pages
    with broker.connect() as connection:
        for number in range(3):
            connection.channel().queue_declare(f"sampled-{number}", durable=True)
    broker.publish("sampled-1", [b"12345"] * 4)
    out = str(tmp_path / "queues")

    queues.append(spark, queues.sample({"url": broker.url}), out)
    broker.take("sampled-1")
    queues.append(spark, queues.sample({"url": broker.url}), out)

    rows = spark.read.parquet(out).where("queue like 'sampled-%'").orderBy("at", "queue").collect()
    assert [(row.queue, row.ready, row.octets, row.published, row.delivered) for row in rows] == [
        ("sampled-0", 0, 0, 0, 0), ("sampled-1", 4, 20, 4, 0), ("sampled-2", 0, 0, 0, 0),
        ("sampled-0", 0, 0, 0, 0), ("sampled-1", 0, 0, 4, 4), ("sampled-2", 0, 0, 0, 0)]


def test_a_job_that_fails_says_why_in_one_line(spark, broker, tmp_path):
    broker.stream("shortened", [b"x"] * 10)
    reading = {"url": broker.url, "subscribe": "shortened"}
    writers = bronze.writers(spark, reading, str(tmp_path / "bronze"))
    with broker.connect() as connection:
        connection.channel().queue_purge("shortened")

    with pytest.raises(JobFailed) as failed:
        run(writers, reporter=Reporter(io.StringIO()))

    assert "bronze: stream 'shortened' begins at offset 10 now" in str(failed.value)
    assert "\n" not in str(failed.value) and "failOnDataLoss" in str(failed.value)
