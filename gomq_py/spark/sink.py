"""The sink, as Spark's Python Data Source API calls it: publishes batches of rows through publishing, with
confirms.

No transaction spans partitions: a failed batch is published again by Spark from its beginning, or by the next
run.
"""
import logging
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from gomq_py.spark.options import credentials
from gomq_py.spark.publishing import Publisher, Target, check_cache, check_columns

LOG = logging.getLogger("gomq_py.spark")


@dataclass
class Published(WriterCommitMessage):
    """Result of one task."""

    count: int


class _Writer:
    """Common to both writers. Made in the driver, where the target is checked; ``write`` runs in a worker."""

    def __init__(self, options, schema):
        check_columns({one.name: one.dataType.simpleString() for one in schema.fields}, options)
        self._target = Target(options, credentials(options))
        self._target.check()
        check_cache(self._target)

    def write(self, iterator):
        """Publish the batches of a partition; returns once all are confirmed."""
        context = TaskContext.get()
        query, batch = (
            context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId")
        )
        run = (
            f"{query}/{batch}" if query
            else f"{context.getLocalProperty('spark.app.id') or ''}/{context.stageId()}"
        )
        publisher = Publisher(self._target, f"{run}/{context.partitionId()}")
        return Published(publisher.publish(row for one in iterator for row in one.to_pylist()))

    def _log(self, messages, batch):
        LOG.info(
            "published %d messages of batch %s", sum(one.count for one in messages if one is not None), batch)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """``df.write.format("gomq")``."""

    def commit(self, messages):
        """Only logs: the messages are published."""
        self._log(messages, "")

    def abort(self, messages):
        """Only warns: a broker cannot take back what other tasks have published."""
        LOG.warning(
            "a batch was not published as a whole; what was, stays: "
            "publish it again with ids and a target that deduplicates")


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """``df.writeStream.format("gomq")``."""

    def commit(self, messages, batchId):
        self._log(messages, batchId)

    def abort(self, messages, batchId):
        """As BatchWriter's; Spark repeats the batch."""
        LOG.warning("batch %s was not published as a whole and will be repeated", batchId)
