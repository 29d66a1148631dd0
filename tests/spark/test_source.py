"""The data source in Spark, against a live broker: batch and streaming queries, the sink,
and what load() says.
"""
import base64
import html
import json
import re
from pathlib import Path

import pytest
import requests
from pyspark.errors import AnalysisException, StreamingQueryException

from gomq_py.pipeline.session import CHECKPOINT_MANAGER, FEWER_PROCESSES, start_fewer_processes
from tests.spark.conftest import allow
from tests.spark.sessions import run_available
from tests.support.waiting import TIMEOUT_S

HUSH, WRONG = "hush-4711-hush", "wrong-4712-wrong"
LINK = re.compile(r'href="([^"]+)"')
MOST_ALIKE = 5


@pytest.fixture(scope="module")
def orders(broker):
    """The name of a stream with the messages 0 to 4999."""
    broker.stream(
        "orders", [b"%d" % number for number in range(5000)], **{"x-stream-max-segment-size-bytes": 65536}
    )
    return "orders"


@pytest.fixture(scope="module")
def login(broker, tmp_path_factory):
    """A file with the login of a user who may read and write everything; the password is in nothing else."""
    allow(broker, "shown", ".*", write=".*", password=HUSH)
    path = tmp_path_factory.mktemp("login") / "login.json"
    path.write_text(json.dumps({"user": "shown", "password": HUSH}))
    return str(path)


def read(spark, broker, stream, **given):
    return spark.read.format("gomq").options(url=broker.url, subscribe=stream, **given).load()


def test_a_batch_query_gives_every_message_once(spark, broker, orders):
    rows = read(spark, broker, orders, minPartitions="2")

    assert rows.columns == [
        "vhost", "queue", "offset", "timestamp", "exchange", "routing_key", "properties", "body"
    ]
    assert sorted((row.offset, row.body) for row in rows.select("offset", "body").collect()) == [
        (number, b"%d" % number) for number in range(5000)]
    first = rows.where("offset = 0").first()
    assert (first.vhost, first.queue, first.exchange, first.routing_key) == ("/", "orders", "", "orders")
    assert first.properties.delivery_mode == 2


def test_a_schema_chooses_columns(spark, broker, orders):
    rows = spark.read.format("gomq").schema("body binary, offset bigint").options(
        url=broker.url, subscribe=orders, startingOffsets="4990").load()

    assert [tuple(row) for row in rows.collect()] == [
        (b"%d" % number, number) for number in range(4990, 5000)
    ]


def test_an_empty_range_gives_no_rows(spark, broker, orders):
    assert read(spark, broker, orders, startingOffsets="latest").count() == 0


@pytest.mark.parametrize("given, words", [
    ({"subscribe": "orders", "startingOffset": "1"}, "did you mean startingOffsets?"),
    ({"url": "http://127.0.0.1:1"}, "give option subscribe"),
    ({"subscribe": "orders", "password": "hush"}, "credentialsFile"),
])
def test_load_refuses_wrong_options(spark, given, words):
    with pytest.raises(AnalysisException) as refused:
        spark.read.format("gomq").options(**given).load()

    assert words in str(refused.value) and "hush" not in str(refused.value)


def test_a_streaming_query_goes_on_where_its_checkpoint_stands(spark, broker, tmp_path):
    broker.stream("steps", [b"%d" % number for number in range(300)])

    def run():
        source = spark.readStream.format("gomq").options(
            url=broker.url, subscribe="steps", startingOffsets="earliest", maxOffsetsPerTrigger="200").load()
        return run_available(
            source.writeStream.format("parquet").option("path", str(tmp_path / "out")),
            tmp_path / "checkpoint",
        )

    first = run()
    broker.publish("steps", [b"%d" % number for number in range(300, 450)])
    second = run()

    assert [progress.numInputRows for progress in first if progress.numInputRows] == [200, 100]
    assert [progress.numInputRows for progress in second if progress.numInputRows] == [150]
    found = spark.read.parquet(str(tmp_path / "out")).select("offset", "body").collect()
    assert sorted((row.offset, row.body) for row in found) == [
        (number, b"%d" % number) for number in range(450)
    ]


def test_options_of_kafkas_source_are_taken(spark, broker, tmp_path):
    broker.stream("kafka,s", [b"%d" % number for number in range(100)])
    source = spark.readStream.format("gomq").options(
        url=broker.url, assign='{"kafka,s": [0]}', startingOffsetsByTimestamp='{"kafka,s": {"0": 1000}}',
        minOffsetsPerTrigger="50", maxTriggerDelay="1h", maxOffsetsPerTrigger="80",
        maxRecordsPerPartition="30").load()

    progress = run_available(
        source.selectExpr("spark_partition_id() as task").writeStream.format("parquet")
        .option("path", str(tmp_path / "out")),
        tmp_path / "checkpoint")

    assert [one.numInputRows for one in progress if one.numInputRows] == [80, 20]
    tasks = spark.read.parquet(str(tmp_path / "out")).groupBy("task").count().collect()
    assert len(tasks) == 3
    assert json.loads(progress[0].sources[0].latestOffset)["metrics"] == {
        "avgOffsetsBehindLatest": 20.0, "maxOffsetsBehindLatest": 20, "minOffsetsBehindLatest": 20}


def test_checkpoints_start_fewer_processes_unless_a_manager_is_named(spark):
    other = FEWER_PROCESSES.replace("FileSystemBased", "FileContextBased")
    spark.conf.unset(CHECKPOINT_MANAGER)
    try:
        start_fewer_processes(spark)
        assert spark.conf.get(CHECKPOINT_MANAGER) == FEWER_PROCESSES
        spark.conf.set(CHECKPOINT_MANAGER, other)
        start_fewer_processes(spark)
        assert spark.conf.get(CHECKPOINT_MANAGER) == other
    finally:
        spark.conf.set(CHECKPOINT_MANAGER, FEWER_PROCESSES)


def test_filters_leave_out_segments_where_they_are_pushed(spark, broker, orders):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = read(spark, broker, orders, pushFilters="true", partitionBytes="1").where(
            "offset >= 4900 and offset < 4950"
        )
        assert sorted(row.offset for row in rows.select("offset").collect()) == list(range(4900, 4950))
        every = read(spark, broker, orders, partitionBytes="1").rdd.getNumPartitions()
        assert rows.rdd.getNumPartitions() < every
        timed = read(spark, broker, orders, pushFilters="times", partitionBytes="1")
        newest = timed.agg({"timestamp": "max"}).first()[0]
        assert timed.where(timed.timestamp >= newest).rdd.getNumPartitions() < every
        assert timed.where(timed.timestamp >= newest).agg({"offset": "max"}).first()[0] == 4999
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_batch_is_published_and_confirmed(spark, broker, orders):
    with broker.connect() as connection:
        connection.channel().queue_declare("copies", durable=True)

    rows = read(spark, broker, orders, startingOffsets="4000").selectExpr("*", "'copies' as goal")
    rows.write.format("gomq").mode("append").options(amqpUrl=broker.amqp_url, queueColumn="goal").save()

    assert sorted(int(one.body) for one in broker.take("copies")) == list(range(4000, 5000))


def test_a_streaming_query_publishes_with_ids_and_shows_no_login(spark, broker, orders, login, tmp_path):
    with broker.connect() as connection:
        connection.channel().queue_declare("followers", durable=True)
    source = spark.readStream.format("gomq").options(
        url=broker.url, subscribe=orders, startingOffsets="4990", credentialsFile=login
    ).load()

    run_available(
        source.writeStream.format("gomq").options(
            amqpUrl=broker.amqp_url, queue="followers", credentialsFile=login
        ),
        tmp_path / "checkpoint",
    )

    assert HUSH not in events_of(spark)

    assert sorted(one.properties.message_id for one in broker.take("followers")) == [
        f"orders/{number}" for number in range(4990, 5000)
    ]


def test_a_batch_that_spark_repeats_is_published_once_where_the_target_remembers_it(
    spark, broker, orders, tmp_path
):
    """As after a kill between the last confirm and the commit of the batch."""
    with broker.connect() as connection:
        connection.channel().queue_declare(
            "remembering", durable=True, arguments={"x-message-deduplication": True, "x-cache-size": 500}
        )
    checkpoint = tmp_path / "checkpoint"

    def run():
        source = spark.readStream.format("gomq").options(
            url=broker.url, subscribe=orders, startingOffsets="4800"
        ).load()
        return run_available(
            source.writeStream.format("gomq").options(
                amqpUrl=broker.amqp_url, url=broker.url, queue="remembering",
                deduplicationHeader="x-deduplication-header", maxBatchRows="500"),
            checkpoint,
        )
    run()
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    again = run()

    assert [progress.numInputRows for progress in again if progress.numInputRows] == [200]
    assert [int(one.body) for one in broker.take("remembering")] == list(range(4800, 5000))


def test_a_stream_that_is_made_anew_fails_a_query_or_is_read_from_its_beginning(spark, broker, tmp_path):
    broker.stream("renewed", [b"%d" % number for number in range(20)])

    def run(**given):
        source = spark.readStream.format("gomq").options(
            url=broker.url, subscribe="renewed", startingOffsets="earliest", includeEpoch="true", **given
        ).load()
        run_available(
            source.writeStream.format("parquet").option("path", str(tmp_path / "out")),
            tmp_path / "checkpoint",
        )
    run()
    with broker.connect() as connection:
        connection.channel().queue_delete("renewed")
    broker.stream("renewed", [b"new %d" % number for number in range(5)])

    with pytest.raises(
        StreamingQueryException, match="deleted and declared again since it was read up to offset 20"
    ):
        run()
    run(failOnDataLoss="false")

    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(bytes(row.body) for row in found) == sorted(
        [b"%d" % number for number in range(20)] + [b"new %d" % number for number in range(5)]
    )
    assert (len({row.offset for row in found}), len({(row.epoch, row.offset) for row in found})) == (20, 25)


def test_a_login_is_in_no_plan_and_no_event_log(spark, broker, orders, login):
    rows = read(spark, broker, orders, credentialsFile=login)

    assert rows.limit(1).count() == 1
    assert HUSH not in rows._jdf.queryExecution().toString()
    assert HUSH not in events_of(spark)


def test_a_login_is_on_no_page_of_sparks_ui(spark, broker, orders, login, tmp_path):
    """Pages of all kinds are looked at that links lead to, and what the UI says to programs.

    A batch and a streaming query have run, and one that failed at its login.
    """
    with broker.connect() as connection:
        connection.channel().queue_declare("looked-at", durable=True)
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"user": "shown", "password": WRONG}))
    name = f"looked-at-{tmp_path.name}"
    source = spark.readStream.format("gomq").options(
        url=broker.url, subscribe=orders, startingOffsets="4990", credentialsFile=login).load()
    run_available(
        source.writeStream.queryName(name).format("gomq").options(
            amqpUrl=broker.amqp_url, queue="looked-at", credentialsFile=login),
        tmp_path / "checkpoint")
    assert read(spark, broker, orders, credentialsFile=login).limit(1).count() == 1
    with pytest.raises(Exception, match="does not let user 'shown' in"):
        read(spark, broker, orders, credentialsFile=str(wrong)).count()

    all_told(spark)
    api = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    pages = pages_of(spark.sparkContext.uiWebUrl, api)

    assert any(path.startswith("/SQL/execution/") for path in pages)
    assert any(path.startswith("/StreamingQuery/statistics") for path in pages)
    # What is looked for would be found: these are shown.
    assert "spark.eventLog.dir" in pages["/environment/"] and name in pages["/StreamingQuery/"]
    assert "BatchScan gomq" in pages[f"{api}/sql?length=1000"]
    for path, text in pages.items():
        for secret in (HUSH, WRONG, *(encoded(word) for word in (HUSH, WRONG))):
            assert secret not in text, path


def encoded(password):
    """The login as a request has it."""
    return base64.b64encode(f"shown:{password}".encode()).decode()


def pages_of(url, api):
    """{path: text} of Spark's UI: what links lead to from its pages, a few of each kind, the newest, and what
    programs are told below ``api``.
    """
    pages: dict = {}
    alike: dict = {}
    waiting = [
        "/jobs/", "/environment/", "/SQL/", "/StreamingQuery/",
        *(f"{api}/{name}" for name in ("environment", "sql?length=1000", "jobs", "stages", "allexecutors"))]
    while waiting:
        path = waiting.pop(0)
        kind = path.partition("?")[0]
        if path in pages or alike.get(kind, 0) == MOST_ALIKE:
            continue
        alike[kind] = alike.get(kind, 0) + 1
        answer = requests.get(url + path, timeout=TIMEOUT_S * 8)
        pages[path] = answer.text
        if "html" in answer.headers.get("Content-Type", ""):
            waiting += [
                found for link in LINK.findall(answer.text)
                if (found := html.unescape(link).removeprefix(url).partition("#")[0]).startswith("/")
                and not found.startswith(("/static/", "/api/")) and "kill" not in found
                and "threadDump" not in found]
    return pages


def events_of(spark):
    """What Spark has noted of this session's queries; its UI shows the same."""
    all_told(spark)
    folder = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
    events = "".join(file.read_text() for file in folder.rglob("events*"))
    assert "SparkListenerJobEnd" in events
    return events


def all_told(spark):
    """Wait until the threads that write events, and show them, have done so."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(int(TIMEOUT_S * 8000))
