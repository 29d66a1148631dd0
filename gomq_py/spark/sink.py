"""The sink that Spark's Python Data Source API calls. It publishes rows, and waits for the broker's confirms.

No transaction covers all partitions. After a failure Spark, or the next run, publishes the whole batch again,
and some messages arrive twice.
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
    """A task's report to the driver. ``count``: number of messages that the task has published."""

    count: int


class _Writer:
    """Base of the writers. The constructor, in Spark's driver, checks the target; workers call ``write``."""

    def __init__(self, options, schema):
        check_columns({one.name: one.dataType.simpleString() for one in schema.fields}, options)
        self._target = Target(options, credentials(options))
        self._target.check()
        check_cache(self._target)

    def write(self, iterator):
        """Publish the RecordBatches of a partition. Returns a Published when all messages are confirmed."""
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
    """The writer of batch queries: ``df.write.format("gomq")``."""

    def commit(self, messages):
        self._log(messages, "")

    def abort(self, messages):
        """Log a warning: the batch failed, and messages that its tasks have published stay in the broker."""
        LOG.warning(
            "a batch was not published as a whole; what was, stays: "
            "publish it again with ids and a target that deduplicates")


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of streaming queries: ``df.writeStream.format("gomq")``."""

    def commit(self, messages, batchId):
        self._log(messages, batchId)

    def abort(self, messages, batchId):
        """Log a warning: the batch failed, perhaps published in part, and Spark repeats all of it."""
        LOG.warning("batch %s was not published as a whole and will be repeated", batchId)
