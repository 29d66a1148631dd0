"""Binds and unbinds queues and exchanges, after a check of the caller's rights.

The vhost has the rules of bindings. ``kind`` is the destination's: access.QUEUE or access.EXCHANGE.
"""
from gomq_py.broker.names import cleaned
from gomq_py.broker.verbs.access import EXCHANGE, QUEUE
from gomq_py.errors import Refused


def bind(caller, kind, destination, source, routing_key, arguments=None):
    """Bind a queue or exchange (``kind``) to ``source``. Returns True if the client's answer must wait for
    the disk. Needs write on the destination and read on the source; a user with a topic permission also
    needs read on the routing key. Raises AccessRefused, NotFound, OutOfResources, PreconditionFailed,
    ResourceLocked.
    """
    vhost = caller.vhost
    _check(caller, kind, destination, source, routing_key)
    if kind == QUEUE:
        vhost.bindings.bind_queue(destination, source, routing_key, arguments, caller.owner)
    else:
        vhost.bindings.bind_exchange(destination, source, routing_key, arguments)
    return _is_durable(vhost, kind, destination, source)


def unbind(caller, kind, destination, source, routing_key, arguments=None):
    """Unbind a queue or exchange (``kind``) from ``source``. Returns True if the client's answer must wait
    for the disk. Needs the same rights as bind(), even for a missing binding. Raises AccessRefused,
    OutOfResources, ResourceLocked.
    """
    vhost = caller.vhost
    _check(caller, kind, destination, source, routing_key)
    if kind == QUEUE:
        vhost.bindings.unbind_queue(destination, source, routing_key, arguments, caller.owner)
    else:
        vhost.bindings.unbind_exchange(destination, source, routing_key, arguments)
    return _is_durable(vhost, kind, destination, source)


def check_own(caller, queue, source, routing_key):
    """Check the rights to create the queue and bind it to ``source``. Raises AccessRefused, NoPermission."""
    caller.access.check_configure(QUEUE, queue)
    _check(caller, QUEUE, queue, source, routing_key)


def may_own_all(caller, queue, source):
    """True if the caller may create this queue and bind it to ``source`` with any key. On False call
    check_own() for each key, because a topic permission may limit the keys.
    """
    if not caller.access.reads_any_topic(caller.vhost.exchanges.get(cleaned(source))):
        return False
    try:
        check_own(caller, queue, source, "")
    except Refused:
        return False
    return True


def _check(caller, kind, destination, source, routing_key):
    """Check rights for bind and unbind, in RabbitMQ's order: on the destination, then on the source."""
    vhost, access = caller.vhost, caller.access
    source, destination = cleaned(source), cleaned(destination)
    access.check_write(kind, destination)
    if kind == EXCHANGE:
        vhost.check_not_default(destination)
    vhost.check_not_default(source)
    access.check_read(EXCHANGE, source)
    access.check_read_topic(vhost.exchanges.get(source), routing_key)


def _is_durable(vhost, kind, destination, source):
    """True if a binding of the two entities is durable, or if the source or the queue is missing."""
    # Its deletion may not be on disk yet.
    exchange = vhost.exchanges.get(cleaned(source))
    if exchange is None:
        return True  # e.g. an auto-delete exchange whose deletion is not on disk yet
    if kind == EXCHANGE:
        return exchange.durable
    queue = vhost.queues.get(cleaned(destination))
    return queue is None or queue.durable and exchange.durable
