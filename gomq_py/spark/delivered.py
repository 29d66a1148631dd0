"""Turns the messages of the transport ``amqp`` into batches of rows. ``reading`` does so for other
transports.

AMQP does not tell consumers when the broker took a message. So the column ``timestamp`` has the header
``timestamp_in_ms``, which an interceptor of the broker may set, or else the publisher's property
``timestamp``, or else null.
"""
import logging
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from gomq_py.client.delivery import Delivery
from gomq_py.errors import Malformed
from gomq_py.spark import rows
from gomq_py.spark.amqp_transport import OFFSET_HEADER
from gomq_py.spark.errors import DataLoss, NoStream

LOG = logging.getLogger("gomq_py.spark")
STAMP_HEADER = "timestamp_in_ms"


class DeliveryReader:
    """Reads Pieces (parts of streams) by AMQP, as rows with columns ``names``.

    ``lost``: number of missing messages so far.
    """

    def __init__(self, options, transport, names):
        self._transport = transport
        self._fails = options["failOnDataLoss"]
        self._makers = {name: MAKERS[name] for name in names}
        self._schema = pa.schema([rows.SCHEMA.field(name) for name in names])
        self._vhost = options["vhost"]
        self._most_rows = options["batchRows"]
        self._most_bytes = options["batchBytes"]
        self.lost = 0

    def batches(self, pieces):
        """Yield RecordBatches of these parts of streams, in order. Raises DataLoss and other GomqErrors."""
        for stream, epoch, first, until in runs(pieces):
            yield from self._read(stream, epoch, first, until)

    def _read(self, stream, epoch, first, until):
        found, size, at = [], 0, first
        came = self._transport.deliveries(stream, first)
        try:
            for offset, delivery in came:
                if offset > at:
                    self._lose(stream, at, min(offset, until), "retention may have dropped them")
                if offset < until:
                    found.append(Row(stream, epoch, self._vhost, offset, delivery))
                    size += len(delivery.body)
                at = offset + 1
                if len(found) >= self._most_rows or size >= self._most_bytes:
                    yield self._batch(found)
                    found, size = [], 0
                if at >= until:
                    break
        except NoStream as error:
            self._lose(stream, at, until, str(error))
        finally:
            came.close()
        if found:
            yield self._batch(found)

    def _batch(self, found):
        arrays = [
            pa.array([make(one) for one in found], self._schema.field(name).type)
            for name, make in self._makers.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _lose(self, stream, first, until, why):
        """Count and log the offsets from ``first`` to ``until`` (exclusive) as missing. With option
        failOnDataLoss, raise DataLoss instead. ``why``: the reason, for the text.
        """
        if until <= first:
            return
        text = f"stream '{stream}' lacks offsets {first} to {until - 1}: {why}"
        if self._fails:
            raise DataLoss(text)
        self.lost += until - first
        LOG.warning("%s: gone on without them, %d in all", text, self.lost)


@dataclass
class Row:
    """A received message, from which the functions in MAKERS make the columns of a row."""

    stream: str
    epoch: str
    vhost: str
    offset: int
    delivery: Delivery

    @cached_property
    def values(self):
        """The message's properties as a dict, with the headers; empty if they cannot be decoded."""
        try:
            return self.delivery.properties.as_dict()
        except Malformed:
            return {}

    @property
    def headers(self):
        """The message's headers as a dict, without the header that has the stream offset."""
        given = self.values.get("headers") or {}
        return {name: value for name, value in given.items() if name != OFFSET_HEADER}


def runs(pieces):
    """Return a list of [stream, epoch, first offset, end offset (exclusive)]. Adjacent Pieces are joined."""
    found: list = []
    for piece in pieces:
        if found and found[-1][:2] == [piece.stream, piece.epoch] and found[-1][3] == piece.first:
            found[-1][3] = piece.until
        else:
            found.append([piece.stream, piece.epoch, piece.first, piece.until])
    return found


def _text(value):
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _microseconds(row):
    stamp = row.headers.get(STAMP_HEADER)
    if isinstance(stamp, int) and not isinstance(stamp, bool) and 0 <= stamp <= rows.LARGEST_SECONDS * 1000:
        return stamp * 1000
    return _seconds(row.values.get("timestamp"))


def _seconds(value):
    return None if value is None or value > rows.LARGEST_SECONDS else value * 1000000


def _properties(row):
    values = row.values
    found = {
        name: _text(value) if isinstance(value, str) else value
        for name, _ in rows.PROPERTIES if (value := values.get(name)) is not None
    }
    if "timestamp" in found:
        found["timestamp"] = _seconds(found["timestamp"])
    return found


def _headers(row):
    shown = [(_text(name), text) for name, text in rows.shown(row.headers)]
    return shown or None


MAKERS = {
    "vhost": lambda row: row.vhost, "queue": lambda row: row.stream, "epoch": lambda row: row.epoch,
    "offset": lambda row: row.offset,
    "timestamp": _microseconds, "exchange": lambda row: _text(row.delivery.exchange),
    "routing_key": lambda row: _text(row.delivery.routing_key), "properties": _properties,
    "headers": _headers, "body": lambda row: row.delivery.body,
}
