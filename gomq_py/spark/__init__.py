"""Spark on the broker's streams and queues: the Python data source ``gomq`` (docs/spark.md).

Apart from the broker: runs in Spark's driver and its workers, reads over HTTP or from files, writes through
``client``. Standard library, pyarrow and pyspark; no gevent, so that it runs wherever Spark does. ``source``
is what Spark is shown; what it reads is planned in ``planning``.
"""


def register(spark):
    """Let a session know the format ``gomq``. Not needed where ``pyspark_gomq`` can be imported: Spark finds
    that by itself.
    """
    from gomq_py.spark.source import GomqDataSource  # here, because pyspark is an extra
    spark.dataSource.register(GomqDataSource)
