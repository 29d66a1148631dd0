"""The Python data source ``gomq``, with which Spark reads streams and publishes to queues (docs/spark.md).

The data source runs in Spark's driver and workers, not in the broker. It reads over HTTP, over AMQP or from
files, and writes over AMQP. It needs only the standard library, pyarrow and pyspark, and does not import
gevent. Spark calls the classes of ``source``. ``planning`` decides which offsets are read.
"""


def register(spark):
    """Register the format ``gomq`` in a Spark session; with pyspark_gomq installed, Spark does so itself."""
    from gomq_py.spark.source import GomqDataSource  # here, because pyspark is an extra
    spark.dataSource.register(GomqDataSource)
