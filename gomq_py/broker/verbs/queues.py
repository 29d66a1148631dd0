"""Operations on queues: declare, delete, take from, look at, purge, pause, restart, after a check of rights.

The vhost has the rules of queues. Protocol servers translate the errors.
"""
from typing import Any, NamedTuple

from gevent.event import Event

from gomq_py.broker.features.dead_lettering import EXCHANGE_ARGUMENT
from gomq_py.broker.names import check_not_reserved, cleaned, described, server_named
from gomq_py.broker.verbs.access import QUEUE
from gomq_py.errors import NotFound
from gomq_py.hub.turns import give_way

# Messages purged before others get their turn: some 5 ms.
PURGE_SLICE = 5000


class DeclaredQueue(NamedTuple):
    """Result of declare(). ``durable``: True if the client's answer must wait for the disk."""

    queue: Any
    created: bool
    durable: bool


class Deleted(NamedTuple):
    """Result of delete(). ``durable``: True if the client's answer must wait for the disk."""

    message_count: int
    durable: bool


def declare(caller, name, durable=False, exclusive=False, auto_delete=False, arguments=None):
    """Declare a queue; without a name, a name is generated. Returns DeclaredQueue. Needs configure. A new
    queue with a dead letter exchange needs read, too, and write on that exchange. Raises AccessRefused,
    NotFound, OutOfResources, PreconditionFailed, ResourceLocked, UnknownType.
    """
    vhost, name, arguments = caller.vhost, cleaned(name), arguments or {}
    generated = not name
    if generated:
        name = server_named()  # here, because permissions are checked by name
    else:
        check_not_reserved("queue", name)
    caller.access.check_configure(QUEUE, name)
    caller.access.check_hand_on(QUEUE, name, vhost.queues, arguments, (EXCHANGE_ARGUMENT,))
    queue, created = vhost.declare_queue(
        name, durable, exclusive, auto_delete, arguments, caller.owner, generated, caller.access.user.name)
    return DeclaredQueue(queue, created, queue.durable)


def passive_declare(caller, name):
    """Return a queue, and postpone its expiry. Needs no right. Raises NotFound, ResourceLocked."""
    queue = caller.vhost.queue(name, caller.owner)
    if queue.limits is not None:
        queue.limits.used()
    return queue


def delete(caller, name, if_unused=False, if_empty=False):
    """Delete a queue and cancel its consumers. Needs configure, even for a missing queue. Returns Deleted.
    Raises AccessRefused, OutOfResources, PreconditionFailed, ResourceLocked.
    """
    vhost, name = caller.vhost, cleaned(name)
    caller.access.check_configure("queue", name)
    queue = vhost.queues.get(name)
    if queue is not None:
        queue.serve()
    count = vhost.delete_queue(name, if_unused, if_empty, caller.owner)
    return Deleted(count, queue is None or queue.durable)  # the queue may have been deleted a moment ago


def to_take_from(caller, name):
    """Return a queue to take messages from. Needs read. Raises AccessRefused, NotFound, ResourceLocked."""
    queue = _to_drop_from(caller, name)
    queue.check_taking()
    return queue


def check_still_takes(caller, name):
    """Raise AccessRefused if the user no longer has the right to read from the queue."""
    caller.access.check_read(QUEUE, name)


def _to_drop_from(caller, name):
    caller.access.check_read("queue", cleaned(name))
    return caller.vhost.queue(name, caller.owner)


def to_look_at(caller, name):
    """Return a queue whose messages the caller wants to see without taking them. The queue may be
    closed or exclusive. Needs read. Raises AccessRefused, NotFound.
    """
    caller.access.check_read("queue", cleaned(name))
    return _named(caller, name)


def readable(caller):
    """List the open queues of the caller's vhost that the caller may read."""
    return [
        queue
        for queue in caller.vhost.queues.values() if not queue.closed and caller.access.may_read(queue.name)
    ]


def purge(caller, name):
    """Drop the ready messages. Returns (queue, count of dropped messages). The client's answer must wait for
    ``queue.after_purge``. Needs read. Raises AccessRefused, NotFound, OutOfResources (streams),
    ResourceLocked.
    """
    queue = _to_drop_from(caller, name)
    queue.serve()
    return queue, queue.purge()


def purge_some(caller, name, count):
    """Drop up to ``count`` ready messages, the oldest first, in slices. Returns the queue. Needs read, which
    is checked before each slice. A stream drops all its messages. Raises AccessRefused, NotFound,
    OutOfResources (streams), ResourceLocked. May switch greenlets.
    """
    queue = _to_drop_from(caller, name)
    left = count
    while left > 0:
        caller.access.check_read(QUEUE, queue.name)
        dropped = queue.purge_some(min(left, PURGE_SLICE))
        left -= dropped
        if left and queue.is_opening():
            until_opened(queue)
        elif dropped == 0:
            break
        give_way()
    return queue


def until_opened(queue):
    """Wait until the queue has opened the files of its next message, or is closed. May switch greenlets."""
    opened = Event()
    queue.when_opened(opened.set)
    opened.wait()


def pause(caller, name, paused=True):
    """Pause a queue's deliveries, or resume them (``paused`` False). Needs configure. Raises AccessRefused,
    NotFound, OutOfResources, ResourceLocked.
    """
    caller.access.check_configure("queue", cleaned(name))
    queue = _named(caller, name)
    caller.vhost.check_access(queue, caller.owner)
    caller.vhost.pause_queue(queue, paused)


def restart(caller, name):
    """Reopen a queue that a fault of its store has closed. Needs configure. Raises AccessRefused, NotFound,
    PreconditionFailed. May switch greenlets.
    """
    caller.access.check_configure("queue", cleaned(name))
    caller.vhost.restart_queue(_named(caller, name))


def _named(caller, name):
    queue = caller.vhost.queues.get(cleaned(name))
    if queue is None:
        raise NotFound(f"no {described('queue', cleaned(name), caller.vhost.name)}")
    return queue
