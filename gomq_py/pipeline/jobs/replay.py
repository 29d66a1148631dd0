"""Replay: publishes messages of a table, or of a stream, again.

A filter chooses messages, and a rate limits the speed. A dry run only counts. Messages keep properties and
headers. A message without an id gets one, made of queue and offset. By default the job removes ``x-death``
and related headers, so that the broker does not count earlier dead-letterings.
"""
from pyspark.sql import functions as f


def chosen(messages, where=None, keep_deaths=False):
    """Return the messages that match ``where`` (an SQL expression), ordered by queue and offset.

    Headers about dead-lettering (``x-death`` and others) are removed unless ``keep_deaths``.
    """
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
    """Return a row per queue: number of messages, bytes of bodies, first and last offset."""
    return messages.groupBy("queue").agg(
        f.count("*").alias("messages"), f.sum(f.length("body")).alias("octets"),
        f.min("offset").alias("first"), f.max("offset").alias("last")).orderBy("queue")


def publish(messages, writing, rate=None):
    """Publish the messages. ``writing``: options of the sink. ``rate``: messages per s; None: no limit."""
    if rate is not None:
        messages = messages.coalesce(1)
        writing = {**writing, "messagesPerSecond": str(rate)}
    messages.write.format("gomq").mode("append").options(**writing).save()
