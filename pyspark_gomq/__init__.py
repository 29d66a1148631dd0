"""Lets Spark find the format ``gomq`` by itself: it registers the DefaultSource of every module on its path
whose name begins with pyspark_.
"""
from gomq_py.spark.source import GomqDataSource


class DefaultSource(GomqDataSource):
    """What Spark looks for."""
