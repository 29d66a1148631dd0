"""Bronze: copies streams unchanged to a Parquet table, partitioned by date and stream.

The table has each message once, unless the stream dropped it before the job read it. Spark's file sink
ensures this by a list of the table's files in ``_spark_metadata``. So no other program may write into the
table, and readers must use Spark. ``compact`` writes a second table with fewer files, and does not change the
first.
"""
from pyspark.sql import functions as f

from gomq_py.pipeline.starting import STARTS, fixed_start

# Default limit of a batch: bounds the size of files and the memory.
MAX_OFFSETS = "1000000"


def source_options(reading, checkpoint):
    """Return ``reading`` with defaults for a job: a limited number of messages per batch, a fixed start.

    By default a job begins at the start of the streams. See ``starting.fixed_start``.
    """
    start = {} if any(name in reading for name in STARTS) else {"startingOffsets": "earliest"}
    return fixed_start({"maxOffsetsPerTrigger": MAX_OFFSETS, **start, **reading}, checkpoint)


def with_times(rows):
    """Return the DataFrame with the time of the batch in place of each null ``timestamp``."""
    # The consumers of other brokers do not learn when a message was published. A repeated batch has the same
    # time.
    return rows.withColumn("timestamp", f.coalesce("timestamp", f.current_timestamp()))


def writers(spark, reading, out, checkpoint=None, name="bronze"):
    """Return {name: DataStreamWriter} of the job's query. ``reading``: options of the data source."""
    checkpoint = checkpoint or f"{out}.checkpoint"
    options = source_options({"includeHeaders": "true", **reading}, checkpoint)
    rows = with_times(spark.readStream.format("gomq").options(**options).load())
    table = rows.withColumn("date", f.to_date("timestamp")).withColumn("stream", f.col("queue"))
    writer = table.writeStream.format("parquet").partitionBy("date", "stream").option("path", out)
    return {name: writer.option("checkpointLocation", checkpoint)}


def compact(spark, source, out, files_per_partition=1):
    """Replace the table ``out`` by a copy of ``source`` with fewer files. Returns the number of rows."""
    table = spark.read.parquet(source)
    table = table.repartition(files_per_partition, "date", "stream").sortWithinPartitions("stream", "offset")
    table.write.mode("overwrite").partitionBy("date", "stream").parquet(out)
    return spark.read.parquet(out).count()
