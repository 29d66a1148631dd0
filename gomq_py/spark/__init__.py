"""Spark on the broker's streams and queues: the Python data source ``gomq`` (docs/spark.md).

Apart from the broker: runs in Spark's driver and workers, reads over HTTP or from files, writes through
``client``. Standard library, pyarrow and pyspark, without gevent, so that it runs wherever Spark does.
``source`` is the interface to Spark, ``planning`` decides what is read.
"""


def register(spark):
    """Register the format ``gomq`` in a session, unless Spark finds it by importing ``pyspark_gomq``."""
    from gomq_py.spark.source import GomqDataSource  # here, because pyspark is an extra
    spark.dataSource.register(GomqDataSource)
