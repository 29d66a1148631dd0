"""Queues: writes samples of queue statistics to a table, partitioned by date.

The table keeps all samples; the broker itself keeps only a short history. A restart of the broker resets the
counters (published, delivered, acked, redelivered). A sample is one file.
"""
from datetime import UTC, datetime

from pyspark.sql import functions as f

from gomq_py.spark.options import Options
from gomq_py.spark.transports import make_transport

COLUMNS = (
    "at timestamp, vhost string, queue string, type string, state string, consumers bigint, ready bigint, "
    "unacked bigint, octets bigint, published bigint, delivered bigint, acked bigint, redelivered bigint")


def sample(reading):
    """Return one row (a tuple, see COLUMNS) per queue of the vhost. Raises GomqError.

    ``reading``: options of the data source.
    """
    options = Options({"subscribePattern": ".*", **reading})
    transport = make_transport(options)
    at = datetime.now(UTC)
    try:
        return [(at, *_figures(queue)) for queue in transport.queues()]
    finally:
        transport.close()


def append(spark, rows, out):
    """Append the rows of one sample to the table in folder ``out``."""
    table = spark.createDataFrame(rows, COLUMNS).withColumn("date", f.to_date("at"))
    table.coalesce(1).write.mode("append").partitionBy("date").parquet(out)


def _figures(queue):
    counts = queue.get("message_stats") or {}
    return (
        queue["vhost"], queue["name"], queue["type"], queue["state"], queue["consumers"],
        queue["messages_ready"], queue["messages_unacknowledged"], queue["message_bytes"],
        *(counts.get(name, 0) for name in ("publish", "deliver_get", "ack", "redeliver")))
