"""Replay: publishes messages of a table, or of a stream, again.

With filters, a rate, and a dry run that only counts.

Messages keep their properties and headers, and get queue and offset as an id if they have none. ``x-death``
is removed by default: a replayed message starts anew.
"""
from pyspark.sql import functions as f


def chosen(messages, where=None, keep_deaths=False):
    """The messages to publish, in order of their offsets."""
    if where:
        messages = messages.where(where)
    if "headers" in messages.columns and not keep_deaths:
        kept = f.map_filter("headers", lambda name, _: (
            ~name.startswith("x-death")
            & ~name.startswith("x-first-death-") & ~name.startswith("x-last-death-")
        ))
        messages = messages.withColumn("headers", kept)
    return messages.orderBy("queue", "offset")


def counts(messages):
    """(queue, messages, octets, first offset, last offset) of the messages to publish."""
    return messages.groupBy("queue").agg(
        f.count("*").alias("messages"), f.sum(f.length("body")).alias("octets"),
        f.min("offset").alias("first"), f.max("offset").alias("last")).orderBy("queue")


def publish(messages, writing, rate=None):
    """Publish the messages. With a ``rate`` a single task publishes so many messages a second."""
    if rate is not None:
        messages = messages.coalesce(1)
        writing = {**writing, "messagesPerSecond": str(rate)}
    messages.write.format("gomq").mode("append").options(**writing).save()
