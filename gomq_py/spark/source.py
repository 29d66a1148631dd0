"""The data source ``gomq``, which Spark's Python Data Source API calls.

``planning`` decides which offsets to read, and ``reading`` or ``delivered`` makes rows of the messages. Spark
makes the readers in separate Python processes and pickles them for its workers. A pickled reader contains the
login, so workers need no password in their environment. It contains no connection. Logs go to standard
error, which Spark keeps.
"""
import logging
import sys

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow,
)

from gomq_py.spark import rows, sink
from gomq_py.spark.errors import OptionError
from gomq_py.spark.offsets import decode, encode
from gomq_py.spark.options import EARLIEST, LATEST, TIMES, Options
from gomq_py.spark.planning import Planner
from gomq_py.spark.progress import Progress
from gomq_py.spark.pruning import Bounds
from gomq_py.spark.transports import make_reader, make_transport

LOG = logging.getLogger("gomq_py.spark")


class GomqDataSource(DataSource):
    """Creates the readers and writers of Spark's ``format("gomq")``, for batch and streaming queries."""

    def __init__(self, options):
        super().__init__(options)
        log_to_stderr()
        self._options = Options(dict(options))

    @classmethod
    def name(cls):
        return "gomq"

    def schema(self):
        """Return the columns as Spark's DDL. Raises OptionError if an option is only for writing."""
        if self._options.is_for_writing:
            raise OptionError("these options are for writing; to read, give option subscribe")
        return rows.ddl(self._options["includeHeaders"], self._options["includeEpoch"])

    def reader(self, schema):
        self._refuse(
            "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
            why="is for streaming: use readStream")
        kind = FilteringReader if self._options["pushFilters"] else BatchReader
        return kind(self._options, _columns(schema))

    def streamReader(self, schema):
        self._refuse(
            "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters",
            why="is for batch queries: use read")
        return StreamReader(self._options, _columns(schema))

    def writer(self, schema, overwrite):
        if overwrite:
            raise OptionError("what is in a queue cannot be overwritten: write with mode('append')")
        return sink.BatchWriter(self._options, schema)

    def streamWriter(self, schema, overwrite):
        return sink.StreamWriter(self._options, schema)

    def _refuse(self, *names, why):
        for name in names:
            if name in self._options.given:
                raise OptionError(f"option {name} {why}")


class Part(InputPartition):
    """A partition in Spark's form: the Pieces (parts of segments) that one task reads."""

    def __init__(self, pieces):
        super().__init__(tuple(pieces))


class _Reader:
    """Base of the readers: the driver plans with it, and workers call ``read``."""

    def __init__(self, options, names):
        self._options = options
        self._names = names
        self._transport = make_transport(options)
        self._planner = Planner(options, self._transport)

    def read(self, partition):
        """Yield the RecordBatches of one partition, in a worker."""
        log_to_stderr()
        if partition is None or partition.value is None:  # Spark's form of an empty list of partitions
            return
        try:
            yield from make_reader(self._options, self._transport, self._names).batches(partition.value)
        finally:
            self._transport.close()

    def _parts(self, pieces):
        return [Part(group) for group in self._planner.partitions(pieces)]


class BatchReader(_Reader, DataSourceReader):
    """The reader of batch queries. The offsets to read are fixed when the query starts."""

    def partitions(self):
        shapes = self._planner.shapes()
        starts, ends = self._planner.starts(shapes, EARLIEST), self._planner.ends(shapes)
        return self._parts([
            piece for name, shape in shapes.items() if starts[name].next < ends[name].next
            for piece in self._select(self._planner.pieces(name, shape, starts[name], ends[name]), shape)])

    def _select(self, pieces, shape):
        return pieces


class FilteringReader(BatchReader):
    """A BatchReader that skips segments which the query's filters exclude."""

    _bounds = Bounds(())

    # A separate class, because Spark refuses every query of a reader that takes filters, unless
    # spark.sql.python.filterPushdown.enabled is true.
    def pushFilters(self, filters):
        """Note the filters, and return all of them, so that Spark also applies them to each row."""
        self._bounds = Bounds(filters, self._options["pushFilters"] == TIMES)
        return filters

    def _select(self, pieces, shape):
        segments = {one.number: one for one in shape.segments}
        return [piece for piece in pieces if self._bounds.may_match(piece, segments[piece.number])]


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of streaming queries. A new query begins at the start that the options give."""

    def __init__(self, options, names):
        super().__init__(options, names)
        self._progress = Progress(options, self._planner)

    def initialOffset(self):
        """Return the start of a query without a checkpoint, as a dict for Spark's checkpoint."""
        return encode(self._planner.starts(self._planner.shapes(), LATEST))

    def getDefaultReadLimit(self):
        """Return Spark's limit for a batch; ReadAllAvailable by default.

        The first of these options that is set gives the limit: maxOffsetsPerTrigger, maxBytesPerTrigger,
        minOffsetsPerTrigger.
        """
        if self._options["maxOffsetsPerTrigger"] is not None:
            return ReadMaxRows(self._options["maxOffsetsPerTrigger"])
        if self._options["maxBytesPerTrigger"] is not None:
            return ReadMaxBytes(self._options["maxBytesPerTrigger"])
        if self._options["minOffsetsPerTrigger"] is not None:
            return ReadMinRows(self._options["minOffsetsPerTrigger"])
        return ReadAllAvailable()

    def latestOffset(self, start, limit):
        """Return the end of the batch that begins at ``start``, as a dict for Spark's checkpoint."""
        return encode(self._progress.next_end(decode(start), not isinstance(limit, ReadAllAvailable)))

    def prepareForTriggerAvailableNow(self):
        """Make the present ends of the streams the end of the query."""
        self._progress.fix_target()

    def reportLatestOffset(self):
        """Return the streams' ends as of the last latestOffset(), for Spark's lag; None before that.

        The dict also has the keys ``metrics``, because Spark does not ask a Python source for metrics, and
        ``firsts``, the streams' first offsets.
        """
        if not self._progress.seen:
            return None
        return {
            **encode(self._progress.seen), "firsts": self._progress.firsts,
            "metrics": self._progress.metrics()}

    def partitions(self, start, end):
        """Divide the batch between ``start`` and ``end`` into Parts, one per task."""
        return self._parts(self._progress.pieces(decode(start), decode(end)))

    def commit(self, end):
        """Do nothing: Spark's checkpoint records the position."""

    def stop(self):
        self._transport.close()


def _columns(schema):
    return rows.check_projection(
        [one.name for one in schema.fields], [one.dataType.simpleString() for one in schema.fields])


def log_to_stderr():
    """Send this package's log to standard error, unless a log handler is installed already."""
    if not LOG.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        LOG.addHandler(handler)
