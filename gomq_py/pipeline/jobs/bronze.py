"""Bronze: streams unchanged, to Parquet by date and stream.

Each offset once, as long as the stream keeps it.

That relies on the list of files that Spark's file sink keeps in ``_spark_metadata``: nothing else may write
into the table, and readers must use Spark. ``compact`` writes a second table with fewer files and leaves the
first alone.
"""
from pyspark.sql import functions as f

from gomq_py.pipeline.starting import fixed_start

# Default limit of a batch: bounds the size of files and the memory.
MAX_OFFSETS = "1000000"


def source_options(reading, checkpoint):
    """The source's options of a job that reads everything, in bounded batches."""
    options = {"maxOffsetsPerTrigger": MAX_OFFSETS, "startingOffsets": "earliest", **reading}
    if "startingTimestamp" in reading:
        options.pop("startingOffsets")
    return fixed_start(options, checkpoint)


def with_times(rows):
    """Rows with the batch's time as ``timestamp`` if it is null: consumers of other brokers do not learn a
    message's time. A repeated batch has the same time.
    """
    return rows.withColumn("timestamp", f.coalesce("timestamp", f.current_timestamp()))


def writers(spark, reading, out, checkpoint=None, name="bronze"):
    """{name: DataStreamWriter} of the job. ``reading``: options of the source."""
    checkpoint = checkpoint or f"{out}.checkpoint"
    options = source_options({"includeHeaders": "true", **reading}, checkpoint)
    rows = with_times(spark.readStream.format("gomq").options(**options).load())
    table = rows.withColumn("date", f.to_date("timestamp")).withColumn("stream", f.col("queue"))
    writer = table.writeStream.format("parquet").partitionBy("date", "stream").option("path", out)
    return {name: writer.option("checkpointLocation", checkpoint)}


def compact(spark, source, out, files_per_partition=1):
    """Copy the whole table into another one with fewer files. Returns the count of rows."""
    table = spark.read.parquet(source)
    table = table.repartition(files_per_partition, "date", "stream").sortWithinPartitions("stream", "offset")
    table.write.mode("overwrite").partitionBy("date", "stream").parquet(out)
    return spark.read.parquet(out).count()
