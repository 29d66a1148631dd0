"""Dead tasks: moves them from ``<queue>.dead`` back to their queue, with fresh attempts.

Each move is a transaction of its own, so a kill of this process leaves each task in exactly one of the two
queues. A kill of the broker during a commit may leave the task in both. With brokers other than gomq-py a
kill of this process may do so, too.
"""

from collections import Counter
from dataclasses import dataclass, field

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed
from gomq_py.dispatcher import tasks as wire
from gomq_py.dispatcher.copies import properties_of
from gomq_py.dispatcher.delays import BrokerDelays, delays_of
from gomq_py.dispatcher.errors import BadTask, DispatcherError
from gomq_py.errors import Malformed

# What the earlier attempts have written.
_OF_EARLIER_ATTEMPTS = (
    wire.ATTEMPT_HEADER, wire.UNKNOWN_HEADER, wire.REASON_HEADER, wire.ERROR_HEADER, wire.QUEUE_HEADER,
    wire.WORKER_HEADER,
)


@dataclass
class Outcome:
    """The result of ``retry_dead``. ``moved`` counts the moved tasks by (name, error). Of the tasks that stay
    dead, ``others`` counts those of other names, ``expired`` those that have expired.
    """

    moved: Counter[tuple[str, str]] = field(default_factory=Counter)
    others: int = 0
    expired: int = 0


def retry_dead(
    connection: Connection, queue: str, outcome: Outcome, *, name: str | None = None,
    limit: int | None = None, dry_run: bool = False,
) -> None:
    """Move tasks from ``<queue>.dead`` back to ``queue``, and count them in ``outcome``.

    ``name``: only tasks of this name. ``limit``: move at most so many. ``dry_run``: only count. Raises
    DispatcherError if a queue is missing or full; tasks that were moved before stay moved.
    """
    dead = f"{queue}.dead"
    is_atomic = isinstance(delays_of(connection.server_properties, queue), BrokerDelays)
    try:
        with connection.channel() as channel:
            channel.queue_declare(queue, passive=True)
            # Without those that die meanwhile: a task that fails at once would go round for ever.
            dead_count = channel.queue_declare(dead, passive=True).message_count
            channel.tx_select()
            for _ in range(dead_count):
                if limit is not None and outcome.moved.total() >= limit:
                    break
                delivery = channel.get(dead)
                if delivery is None:
                    break
                headers = _headers_of(delivery)
                found = _name_of(delivery)
                if name is not None and found != name:
                    outcome.others += 1
                elif wire.has_expired(headers):
                    outcome.expired += 1
                else:
                    if not dry_run:
                        _move(channel, queue, delivery, is_atomic)
                    outcome.moved[found, _error_of(headers)] += 1
    except ChannelClosed as error:
        raise DispatcherError(str(error)) from None
    # The end of the channel has put back what was taken and not moved.


def _move(channel, queue, delivery, is_atomic):
    channel.publish("", queue, delivery.body, properties_of(delivery, without=_OF_EARLIER_ATTEMPTS))
    if not is_atomic:
        # RabbitMQ executes the acknowledgement of a transaction even if a full queue refuses its message.
        channel.tx_commit()
    # If the queue has been deleted, this ends the channel before the commit, which would lose the task.
    channel.queue_declare(queue, passive=True)
    delivery.ack()
    channel.tx_commit()


def _headers_of(delivery):
    try:
        return delivery.properties.headers or {}
    except Malformed:
        return {}


def _name_of(delivery):
    try:
        return wire.decode(delivery.body).name
    except BadTask:
        return "(no task)"


def _error_of(headers):
    """Return the error's name from the worker's header, or else the broker's reason for dead-lettering."""
    deaths = headers.get("x-death")
    first = deaths[0] if isinstance(deaths, list) and deaths else None
    error = headers.get(wire.ERROR_HEADER) or (first.get("reason") if isinstance(first, dict) else None)
    return error if isinstance(error, str) else "unknown"
