"""Telemetry: decodes payloads of devices into a table of readings and a table of time windows per device.

A third table, the quarantine, gets payloads that cannot be decoded. Three queries read the same streams. Each
query has its own checkpoint, so that its table counts each message once, even after a crash. A window is
written when the watermark has passed its end. So with ``--once`` the newest windows are written by a later
run, when newer messages have arrived.
"""
import os

from pyspark.sql import functions as f

from gomq_py.pipeline.jobs.bronze import source_options, with_times
from gomq_py.pipeline.payloads import Undecodable
from gomq_py.pipeline.readings import readings

_SPARK = {"double": "double", "long": "bigint", "boolean": "boolean", "string": "string"}
_NEEDED = "queue string, offset bigint, timestamp timestamp, routing_key string, body binary"


def writers(spark, reading, schema, out, checkpoint=None, prefix=""):
    """Return {name: DataStreamWriter} of the queries readings, windows and quarantine.

    ``reading``: options of the data source. ``schema``: a Schema. ``prefix``: start of the queries' names.
    """
    checkpoint = checkpoint or f"{out}.checkpoint"
    options = source_options(reading, checkpoint)

    def decoded():
        rows = with_times(spark.readStream.format("gomq").schema(_NEEDED).options(**options).load())
        found = f.udf(Decoder(schema), returned(schema), useArrow=False)("routing_key", "body", "timestamp")
        return rows.withColumn("reading", f.explode(found)).select("*", "reading.*").drop("reading")

    def table(name, rows, *parts):
        writer = rows.writeStream.format("parquet").outputMode("append")
        writer = writer.option("path", os.path.join(out, name))
        writer = writer.option("checkpointLocation", os.path.join(checkpoint, name))
        return writer.partitionBy(*parts) if parts else writer
    names = [name for name, _ in schema.fields]
    good = decoded().where("error is null").select("queue", "offset", "device", "time", *names)
    bad = decoded().where("error is not null").select(
        "queue", "offset", "timestamp", "routing_key", "body", "error")
    return {
        f"{prefix}readings": table("readings", good.withColumn("date", f.to_date("time")), "date"),
        f"{prefix}windows": table("windows", windows(good, schema)),
        f"{prefix}quarantine": table("quarantine", bad),
    }


def windows(rows, schema):
    """Return rows of device and time window: count of readings; mean, minimum, maximum of each number."""
    numbers = [name for name, kind in schema.fields if kind in ("double", "long")]
    sums = [function(name).alias(f"{name}_{word}") for name in numbers
            for word, function in (("avg", f.avg), ("min", f.min), ("max", f.max))]
    by_device = rows.withWatermark("time", schema.watermark).groupBy(
        f.window("time", schema.window), "device")
    return by_device.agg(f.count("*").alias("readings"), *sums).select(
        f.col("window.start").alias("start"), f.col("window.end").alias("end"), "device", "readings",
        *[f"{name}_{word}" for name in numbers for word in ("avg", "min", "max")])


def returned(schema):
    """Return the Spark type of a Decoder's result: an array of readings, or of a single error."""
    fields = "".join(f", `{name}`: {_SPARK[kind]}" for name, kind in schema.fields)
    return f"array<struct<error: string, device: string, time: timestamp{fields}>>"


class Decoder:
    """A UDF for Spark's workers that decodes a message's payload into readings."""

    # mapInArrow would need pandas.
    def __init__(self, schema):
        self._schema = schema
        self._nothing = (None,) * (2 + len(schema.fields))

    def __call__(self, routing_key, body, came_at):
        try:
            return [(None, device, time, *values) for device, time, values in readings(
                self._schema, routing_key, body, came_at)]
        except Undecodable as error:
            return [(str(error), *self._nothing)]
