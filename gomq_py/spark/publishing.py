"""Publishes rows in Spark's workers for the sink. This module does not import Spark.

``Publisher.publish`` returns when every message is confirmed, so that each message arrives at least once.
After a reconnect unconfirmed messages are published again and may arrive twice. The receiver can drop
duplicates by the messages' ids, which stay the same when Spark repeats a task.
"""
import json
import time

from gomq_py.client.errors import ChannelClosed, ClientError
from gomq_py.content.properties import Properties
from gomq_py.spark.amqp_door import ACCESS_REFUSED, NOT_FOUND, AmqpDoor
from gomq_py.spark.errors import GomqError, OptionError, Refused, Unreachable
from gomq_py.spark.http_transport import HttpTransport

PAUSE_S = 0.2
# Columns of a sink's rows and their Spark types; other columns are ignored.
COLUMNS = {
    "body": ("binary", "string"), "exchange": ("string",), "routing_key": ("string",), "queue": ("string",),
    "offset": ("bigint", "int"), "headers": ("map<string,string>",),
}
# Default cache size of a target (broker.features.deduplication).
DEFAULT_SIZE = 128
# Not published again: the publisher is another user now.
_LEFT_OUT = "user_id"
_NAMES = frozenset(Properties.__slots__) - {_LEFT_OUT, "headers"}


def check_columns(columns, options):
    """Check that columns, {name: Spark's type}, can be published with these options. Raises OptionError."""
    if "body" not in columns:
        raise OptionError(f"there is no column body to publish; there are {', '.join(columns)}")
    for name, kinds in COLUMNS.items():
        if name in columns and columns[name] not in kinds:
            raise OptionError(f"column {name} is {columns[name]}, and is published as {' or '.join(kinds)}")
    if "properties" in columns and not columns["properties"].startswith("struct<"):
        raise OptionError(
            f"column properties is {columns['properties']}, "
            "and is published as a struct such as the source gives")
    target = options["queueColumn"]
    if target is not None and columns.get(target) != "string":
        raise OptionError(
            f"option queueColumn names {target}, which is {columns.get(target, 'no column')}; "
            "it is one of type string")
    wanted = options["messageIdColumn"]
    if wanted is not None and columns.get(wanted) not in ("string", "bigint", "int"):
        raise OptionError(
            f"option messageIdColumn names {wanted}, which is {columns.get(wanted, 'no column')}; "
            "it is one of type string, bigint or int")
    if options["exchange"] is not None and options["routingKey"] is None and "routing_key" not in columns:
        raise OptionError("option routingKey is missing, and there is no column routing_key")
    if (
        options["deduplicationHeader"] is not None and wanted is None and not options["rowMessageIds"]
        and not ("queue" in columns and "offset" in columns)
    ):
        raise OptionError(
            "option deduplicationHeader needs ids: give option messageIdColumn, or columns queue and offset, "
            "or, where the query gives the same rows in the same order whenever it is repeated, "
            "option rowMessageIds=true")


def check_cache(target):
    """Check that the target's deduplication cache has room for maxBatchRows ids, the largest batch.

    Does nothing without option deduplicationHeader. Raises OptionError, GomqError.
    """
    # So a repeated batch does not arrive twice.
    options = target.options
    header = options["deduplicationHeader"]
    if header is None:
        return
    if options["maxBatchRows"] is None:
        raise OptionError(
            "option deduplicationHeader needs option maxBatchRows: the most rows that a batch may have, "
            "which the target's x-cache-size has to remember")
    kind, name = (
        ("queues", options["queue"]) if options["queue"] is not None else ("exchanges", options["exchange"])
    )
    arguments = HttpTransport(options, target.credentials).arguments(kind, name)
    if arguments.get("x-message-deduplication") is not True:
        raise GomqError(
            f"'{name}' does not deduplicate: declare it with x-message-deduplication=true, and x-cache-size "
            f"of at least {options['maxBatchRows']}")
    known = arguments.get("x-deduplication-header", "x-deduplication-header")
    if known != header:
        raise OptionError(f"option deduplicationHeader is {header}, and '{name}' looks at {known}")
    size = arguments.get("x-cache-size", DEFAULT_SIZE)
    if size < options["maxBatchRows"]:
        raise OptionError(
            f"'{name}' remembers {size} ids (x-cache-size) and a batch may have {options['maxBatchRows']} "
            "rows (option maxBatchRows): a repeated batch would come twice. "
            "Declare it with a larger cache, or make batches smaller")


class Target(AmqpDoor):
    """The exchange or queue to publish to, and the way to connect to its broker."""

    def check(self):
        """Check that the exchange or queue exists. Raises GomqError, Refused, Unreachable."""
        exchange, queue = self.options["exchange"], self.options["queue"]
        with self.connect() as connection:
            try:
                if queue is not None:
                    connection.channel().queue_declare(queue, passive=True)
                elif exchange:
                    connection.channel().exchange_declare(exchange, passive=True)
            except ChannelClosed as error:
                raise self.refused(error) from None

    def refused(self, error):
        where = (
            f"queue '{self.options['queue']}'" if self.options["queue"] is not None
            else f"exchange '{self.options['exchange'] or ''}'"
        )
        if error.reply_code == NOT_FOUND:
            return GomqError(
                f"there is no {where} in vhost '{self.options['vhost']}' at {self.shown} ({error}): "
                "declare it first")
        if error.reply_code == ACCESS_REFUSED:
            return Refused(
                f"user '{self.credentials.user}' may not publish to {where} ({error}): "
                "give it write permission there")
        return GomqError(f"publishing to {where} at {self.shown} was refused: {error}")


class Publisher:
    """Publishes the rows of one partition. ``prefix``: start of the ids that option rowMessageIds makes."""

    def __init__(self, target, prefix):
        self._target = target
        self._options = target.options
        self._prefix = prefix
        self._connection = self._channel = None
        self.count = 0

    def publish(self, rows):
        """Publish rows, each a dict. Returns their number when all are confirmed. Raises GomqError."""
        batch, began = [], time.monotonic()
        rate, most = self._options["messagesPerSecond"], self._options["confirmBatch"]
        most = min(most, rate or most)
        try:
            for row in rows:
                batch.append(self._message(row))
                self.count += 1
                if self.count > (self._options["maxBatchRows"] or self.count):
                    raise GomqError(
                        "a batch has more rows than option maxBatchRows says: "
                        f"{self._options['maxBatchRows']}")
                if len(batch) >= most:
                    self._send(batch)
                    batch = []
                    if rate is not None:
                        time.sleep(max(0.0, began + self.count / rate - time.monotonic()))
            if batch:
                self._send(batch)
            if self._connection is not None:
                self._connection.close()
        except BaseException:
            if self._connection is not None:
                self._connection.abort()
            raise
        return self.count

    def _send(self, batch):
        """Publish messages and wait for the confirms. Retries connection errors for ``retrySeconds``. Raises
        GomqError if the broker refuses or returns a message.
        """
        deadline = time.monotonic() + self._options["retrySeconds"]
        while True:
            try:
                self._open()
                self._channel.publish_many(batch, mandatory=self._options["mandatory"])
                if not self._channel.wait_for_confirms(self._options["confirmSeconds"]):
                    raise GomqError(
                        f"{self._target.shown} refused messages (basic.nack): "
                        "the target is full, or its disk is")
                self._raise_returned()
                return
            except ChannelClosed as error:
                raise self._target.refused(error) from None
            except Refused:
                raise
            except (ClientError, OSError, Unreachable) as error:
                self._connection = None
                if time.monotonic() >= deadline:
                    raise Unreachable(
                        f"{self._target.shown} does not take messages, tried for "
                        f"{self._options['retrySeconds']:g} s: {error}") from None
                time.sleep(PAUSE_S)

    def _open(self):
        if self._connection is None:
            connection = self._target.connect()
            self._channel = connection.channel()
            self._channel.confirm_select()
            self._connection = connection

    def _raise_returned(self):
        if self._channel.returned:
            returned = self._channel.returned[0]
            raise GomqError(
                f"{len(self._channel.returned)} messages were returned, the first with exchange "
                f"'{returned.exchange}' and routing key '{returned.routing_key}': no queue is bound for it. "
                "Bind one, or drop such messages with mandatory=false")

    def _message(self, row):
        """Return the message for a row, as (exchange, routing key, body, properties)."""
        options = self._options
        identity = self._identity(row)
        body = row["body"]
        if options["queue"] is not None:
            exchange, routing_key = "", options["queue"]
        elif options["queueColumn"] is not None:
            exchange, routing_key = "", row[options["queueColumn"]]
            if not routing_key:
                raise GomqError(
                    f"column {options['queueColumn']} (option queueColumn) names no queue in a row")
        else:
            exchange = options["exchange"]
            routing_key = (
                options["routingKey"] if options["routingKey"] is not None else row["routing_key"] or ""
            )
        values = {
            name: value
            for name, value in (row.get("properties") or {}).items() if value is not None and name in _NAMES
        }
        if identity is not None:
            values.setdefault("message_id", identity[-255:])
        values.setdefault("delivery_mode", 2 if options["persistent"] else 1)
        headers = {name: _value(text) for name, text in row.get("headers") or ()}
        if options["deduplicationHeader"] is not None and identity is not None:
            headers[options["deduplicationHeader"]] = identity
        properties = Properties(**values, headers=headers or None).encode()
        return exchange, routing_key, b"" if body is None else body, properties

    def _identity(self, row):
        column = self._options["messageIdColumn"]
        if column is not None:
            if row[column] is None:
                raise GomqError(f"column {column} (option messageIdColumn) is null in a row")
            return str(row[column])
        if row.get("queue") is not None and row.get("offset") is not None:
            # the offsets of a stream that was declared anew are repeated
            epoch = f"{row['epoch']}/" if isinstance(row.get("epoch"), str) else ""
            return f"{row['queue']}/{epoch}{row['offset']}"
        return f"{self._prefix}/{self.count}" if self._options["rowMessageIds"] else None


def _value(text):
    """Return the value of a header from a row: the parsed JSON or, if the text is not JSON, the text."""
    # The source writes headers as JSON.
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text
