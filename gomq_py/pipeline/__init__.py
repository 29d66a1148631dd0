"""``gomq-py-pipeline``: jobs on Spark over the broker's streams, a process of its own (docs/spark.md).

Above spark, the data source. ``cli`` knows the commands, ``session`` starts Spark, ``running`` runs queries
and tells how far they are, ``jobs`` say what the queries are. Nothing here is imported by the broker.
"""
