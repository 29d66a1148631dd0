"""A full disk where jobs write: what they say, and that nothing is lost or doubled once there is room."""
import io
import os

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from gomq_py.pipeline.failures import FULL_DISK, told
from gomq_py.pipeline.jobs import bronze, dead_letters, telemetry
from gomq_py.pipeline.readings import make_schema
from gomq_py.pipeline.running import JobFailed, Reporter, run
from tests.spark.full_disk import little_disk

BODIES = 64
SCHEMA = make_schema({"device": "topic:0", "fields": {"t": "double"}})


def fill(broker, stream, octets):
    """A stream with so many octets in BODIES messages, which no codec makes smaller."""
    broker.stream(stream, [os.urandom(octets // BODIES) for _ in range(BODIES)])


def offsets(spark, table):
    return sorted(row.offset for row in spark.read.parquet(table).select("offset").collect())


def test_bronze_goes_on_where_the_disk_was_full(spark, broker, tmp_path):
    with little_disk(spark, tmp_path / "disk") as disk:
        fill(broker, "disk-bronze", disk.too_much)
        table, compacted = str(tmp_path / "disk" / "bronze"), str(tmp_path / "disk" / "compact")

        def once():
            run(
                bronze.writers(spark, {"url": broker.url, "subscribe": "disk-bronze"}, table),
                reporter=Reporter(io.StringIO()))

        with pytest.raises(JobFailed) as failed:
            once()
        disk.make_room()
        once()

        assert str(failed.value) == f"bronze: {FULL_DISK}"
        assert offsets(spark, table) == list(range(BODIES))
        assert bronze.compact(spark, table, compacted) == BODIES


def test_telemetry_goes_on_where_the_disk_was_full(spark, broker, tmp_path):
    """What cannot be decoded fills it."""
    with little_disk(spark, tmp_path / "disk") as disk:
        fill(broker, "disk-telemetry", disk.too_much)
        reading = {"url": broker.url, "subscribe": "disk-telemetry"}
        out = str(tmp_path / "disk" / "tables")

        def once():
            writers = telemetry.writers(spark, reading, SCHEMA, out, str(tmp_path / "checkpoint"))
            run({"quarantine": writers["quarantine"]}, reporter=Reporter(io.StringIO()))

        with pytest.raises(JobFailed) as failed:
            once()
        disk.make_room()
        once()

        assert str(failed.value) == f"quarantine: {FULL_DISK}"
        assert offsets(spark, os.path.join(out, "quarantine")) == list(range(BODIES))


def test_dead_letters_say_that_the_disk_is_full(spark, broker, tmp_path):
    """The messages themselves are written, because a summary is too small for every kind of full disk."""
    with little_disk(spark, tmp_path / "disk") as disk:
        fill(broker, "disk-letters", disk.too_much)
        messages = dead_letters.rows(spark, {"url": broker.url, "subscribe": "disk-letters"})
        out = str(tmp_path / "disk" / "letters")

        with pytest.raises((PySparkException, Py4JJavaError)) as failed:
            messages.write.mode("overwrite").parquet(out)
        disk.make_room()
        messages.write.mode("overwrite").parquet(out)

        assert told(failed.value) == FULL_DISK
        assert offsets(spark, out) == list(range(BODIES))
