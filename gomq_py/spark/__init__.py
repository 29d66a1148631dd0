"""The Python data source ``gomq``, with which Spark reads streams and publishes to queues (docs/spark.md).

The data source runs in Spark's driver and workers, not in the broker. It reads over HTTP, AMQP or from files,
and writes over AMQP. It needs only the standard library, pyarrow and pyspark, and never gevent. ``source`` is
the interface to Spark. ``planning`` decides which offsets are read.
"""


def register(spark):
    """Register the format ``gomq`` in a Spark session, unless Spark found it in the package pyspark_gomq."""
    from gomq_py.spark.source import GomqDataSource  # here, because pyspark is an extra
    spark.dataSource.register(GomqDataSource)
