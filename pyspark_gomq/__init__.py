"""Lets Spark find the format ``gomq`` by itself: Spark registers the DefaultSource of every module on its
path whose name begins with pyspark_.
"""
from gomq_py.spark.source import GomqDataSource


class DefaultSource(GomqDataSource):
    """The data source ``gomq``, under the name that Spark looks for."""
