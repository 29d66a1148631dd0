"""Metrics: counts messages and bytes by stream, exchange and minute.

The counts are for dashboards. The job counts the bytes of bodies and does not store bodies.
"""
from pyspark.sql import functions as f

from gomq_py.pipeline.jobs.bronze import source_options, with_times

_NEEDED = "queue string, timestamp timestamp, exchange string, body binary"
# A minute is written when messages this much later have arrived: segments of several streams are not read in
# the order of their times.
WATERMARK = "1 minute"


def writers(spark, reading, out, checkpoint=None, name="metrics"):
    """Return {name: DataStreamWriter} of the job's query. ``reading``: options of the data source.

    The counts of a minute are written when messages have arrived that are later by at least WATERMARK.
    """
    checkpoint = checkpoint or f"{out}.checkpoint"
    options = source_options(reading, checkpoint)
    rows = with_times(spark.readStream.format("gomq").schema(_NEEDED).options(**options).load())
    minutes = rows.withWatermark("timestamp", WATERMARK).groupBy(
        f.window("timestamp", "1 minute"), "queue", "exchange")
    counts = minutes.agg(
        f.count("*").alias("messages"), f.sum(f.length("body")).alias("octets"),
        f.max(f.length("body")).alias("largest"),
    )
    table = counts.select(
        f.col("window.start").alias("minute"), f.col("queue").alias("stream"), "exchange", "messages",
        "octets", "largest",
    )
    writer = table.writeStream.format("parquet").outputMode("append").option("path", out)
    return {name: writer.option("checkpointLocation", checkpoint)}
