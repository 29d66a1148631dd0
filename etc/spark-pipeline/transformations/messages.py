"""Streams of the broker as a table that grows with each run,
and how many messages each routing key has had.
"""
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as f

spark = SparkSession.active()


@dp.table
def messages():
    """Every message once, from the first that the streams keep.

    The login is in GOMQ_USER and GOMQ_PASSWORD.
    """
    return spark.readStream.format("gomq").options(
        url=spark.conf.get("gomq.url"), subscribe=spark.conf.get("gomq.streams"),
        startingOffsets="earliest").load()


@dp.materialized_view
def routing_keys():
    """How many messages, and of how many bytes."""
    return spark.read.table("messages").groupBy("queue", "routing_key").agg(
        f.count("*").alias("messages"), f.sum(f.length("body")).alias("octets"))
