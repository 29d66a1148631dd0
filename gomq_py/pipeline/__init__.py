"""The command ``gomq-py-pipeline`` runs Spark jobs over the broker's streams (docs/spark.md).

The jobs use the data source of gomq_py.spark. ``cli`` has the commands, ``session`` starts Spark, ``running``
runs queries and reports progress, ``jobs`` defines the queries. The broker does not import this package.
"""
