"""Dead letters: counts dead-lettered messages by queue, reason and hour, and shows samples.

The job is a batch query over a stream that receives dead letters (docs/spark.md), or over a bronze table.
"""
from pyspark.sql import functions as f

# The source's JSON of the x-death header, newest death first; only the newest is counted.
DEATHS = "array<struct<count:bigint,queue:string,exchange:string,reason:string,time:string>>"
LONGEST_SAMPLE = 200


def rows(spark, reading=None, table=None):
    """Return a DataFrame of the bronze table or, without one, of the streams that ``reading`` names."""
    if table is not None:
        return spark.read.parquet(table)
    return spark.read.format("gomq").options(**{"includeHeaders": "true", **reading}).load()


def deaths(messages):
    """Return the dead-lettered messages, each with columns about its newest dead-lettering.

    These are ``died_in`` (queue), ``reason``, ``deaths`` (how often it was dead-lettered there for this
    reason) and ``hour`` (of the timestamp).
    """
    death = f.from_json(f.col("headers")["x-death"], DEATHS)[0]
    return messages.withColumn("death", death).where("death is not null").select(
        f.col("death.queue").alias("died_in"), f.col("death.reason").alias("reason"),
        f.col("death.count").alias("deaths"), f.date_trunc("hour", "timestamp").alias("hour"),
        *messages.columns)


def summary(messages):
    """Return a row per queue, reason and hour, with the number of dead-lettered messages and their bytes."""
    return deaths(messages).groupBy("died_in", "reason", "hour").agg(
        f.count("*").alias("messages"), f.sum(f.length("body")).alias("octets"),
        f.max("deaths").alias("most_deaths"),
    ).orderBy("died_in", "reason", "hour")


def samples(messages, count=3):
    """Return rows of the newest ``count`` messages per queue and reason, with the beginnings of bodies."""
    from pyspark.sql import Window
    newest = Window.partitionBy("died_in", "reason").orderBy(f.desc("timestamp"), f.desc("offset"))
    text = f.make_valid_utf8(f.substring("body", 1, LONGEST_SAMPLE).cast("string"))
    return (
        deaths(messages).withColumn("place", f.row_number().over(newest)).where(f.col("place") <= count)
        .select("died_in", "reason", "queue", "offset", "routing_key", text.alias("beginning"))
        .orderBy("died_in", "reason", "place")
    )
