"""``gomq-py-pipeline``: Spark jobs over the broker's streams, in a process of its own (docs/spark.md).

Above spark, the data source. ``cli`` has the commands, ``session`` starts Spark, ``running`` runs queries and
reports progress, ``jobs`` define the queries. The broker imports nothing of it.
"""
