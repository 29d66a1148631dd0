"""Verbs of queues: declare, find, delete, take from, look at, purge, pause, restart, with their rights.

Above the vhost, which knows the rules about queues. What they raise is for the door to tell.
"""
from typing import Any, NamedTuple

from gevent.event import Event

from gomq_py.broker.features.dead_lettering import EXCHANGE_ARGUMENT
from gomq_py.broker.names import check_not_reserved, cleaned, described, server_named
from gomq_py.broker.verbs.access import QUEUE
from gomq_py.errors import NotFound
from gomq_py.hub.turns import give_way

# Messages that are purged before others get their turn: some 5 ms.
PURGE_SLICE = 5000


class Declared(NamedTuple):
    """What a declare returns. ``durable``: the answer leaves when the queue is on the disk."""

    queue: Any
    created: bool
    durable: bool


class Deleted(NamedTuple):
    """What a delete returns: how many messages were ready. ``durable``: the answer leaves when it is on the
    disk.
    """

    message_count: int
    durable: bool


def declare(caller, name, durable=False, exclusive=False, auto_delete=False, arguments=None):
    """Declare. Needs configure; a new queue with a dead letter exchange also read on itself and write on that
    exchange.

    A queue without a name is given one. Returns Declared. Raises AccessRefused, NotFound, PreconditionFailed,
    ResourceLocked.
    """
    vhost, name, arguments = caller.vhost, cleaned(name), arguments or {}
    generated = not name
    if generated:
        name = server_named()  # not by the vhost: permissions are asked for by name
    else:
        check_not_reserved("queue", name)
    caller.access.configure(QUEUE, name)
    caller.access.hand_on(QUEUE, name, vhost.queues, arguments, (EXCHANGE_ARGUMENT,))
    queue, created = vhost.declare_queue(
        name, durable, exclusive, auto_delete, arguments, caller.owner, server_named=generated)
    return Declared(queue, created, queue.durable)


def find(caller, name):
    """Find a queue, as a passive declare does: needs no right, and counts as a use of the queue.

    Raises NotFound, ResourceLocked.
    """
    queue = caller.vhost.queue(name, caller.owner)
    if queue.limits is not None:
        queue.limits.used()
    return queue


def delete(caller, name, if_unused=False, if_empty=False):
    """Delete a queue and cancel its consumers. Needs configure, even for a queue that is missing.

    Returns Deleted. Raises AccessRefused, PreconditionFailed, ResourceLocked.
    """
    vhost, name = caller.vhost, cleaned(name)
    caller.access.configure("queue", name)
    queue = vhost.queues.get(name)
    if queue is not None:
        queue.serve()
    count = vhost.delete_queue(name, if_unused, if_empty, caller.owner)
    return Deleted(count, queue is None or queue.durable)  # one that is missing may have gone a moment ago


def to_take_from(caller, name):
    """The queue, for a caller who consumes or gets its messages. Needs read.

    Raises AccessRefused, NotFound, ResourceLocked.
    """
    queue = _to_drop_from(caller, name)
    queue.check_taking()
    return queue


def check_still_takes(caller, name):
    """Whether a caller who consumes from the queue may still: needs read. Raises AccessRefused."""
    caller.access.read(QUEUE, name)


def _to_drop_from(caller, name):
    caller.access.read("queue", cleaned(name))
    return caller.vhost.queue(name, caller.owner)


def to_look_at(caller, name):
    """The queue, for a caller who only looks at its messages; also a closed one, or another connection's.
    Needs read.

    Raises AccessRefused, NotFound.
    """
    caller.access.read("queue", cleaned(name))
    return _named(caller, name)


def readable(caller):
    """The open queues of the caller's vhost that it may read."""
    return [
        queue
        for queue in caller.vhost.queues.values() if not queue.closed and caller.access.may_read(queue.name)
    ]


def purge(caller, name):
    """Drop the ready messages. Needs read.

    Returns (queue, how many); the answer leaves ``queue.after_purge``. Raises AccessRefused, NotFound,
    ResourceLocked.
    """
    queue = _to_drop_from(caller, name)
    queue.serve()
    return queue, queue.purge()


def purge_some(caller, name, count):
    """Drop up to ``count`` ready messages, the oldest first, while the caller may. For the rest as purge.
    Returns the queue. May switch.
    """
    queue = _to_drop_from(caller, name)
    left = count
    while left > 0:
        caller.access.read(QUEUE, queue.name)
        dropped = queue.purge_some(min(left, PURGE_SLICE))
        left -= dropped
        if left and queue.is_opening():
            until_opened(queue)
        elif dropped == 0:
            break
        give_way()
    return queue


def until_opened(queue):
    """Return once the queue has opened the files of its next message (``is_opening`` is False). May switch.
    """
    opened = Event()
    queue.when_opened(opened.set)
    opened.wait()


def pause(caller, name, paused=True):
    """Deliver nothing until it is resumed (``paused`` False). Needs configure.

    Raises AccessRefused, NotFound, OutOfResources, ResourceLocked.
    """
    caller.access.configure("queue", cleaned(name))
    queue = _named(caller, name)
    caller.vhost.check_access(queue, caller.owner)
    caller.vhost.pause_queue(queue, paused)


def restart(caller, name):
    """Open a queue again that a fault of its store has closed. Needs configure.

    Raises AccessRefused, NotFound, PreconditionFailed. May switch.
    """
    caller.access.configure("queue", cleaned(name))
    caller.vhost.restart_queue(_named(caller, name))


def _named(caller, name):
    queue = caller.vhost.queues.get(cleaned(name))
    if queue is None:
        raise NotFound(f"no {described('queue', cleaned(name), caller.vhost.name)}")
    return queue
