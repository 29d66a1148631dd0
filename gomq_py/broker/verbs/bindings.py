"""Verbs of bindings: bind and unbind, of queues and of exchanges, each with the rights that it needs.

Above the vhost, which knows the rules about bindings. ``kind`` says what the destination is: rights.QUEUE or
rights.EXCHANGE. Both return whether the answer has to wait for the disk.
"""
from gomq_py.broker.names import cleaned
from gomq_py.broker.verbs import rights


def bind(caller, kind, destination, source, routing_key, arguments=None):
    """Bind. Needs write on the destination and read on the source, and on the routing key where that is
    limited.

    Raises AccessRefused, NotFound, PreconditionFailed, ResourceLocked.
    """
    vhost = caller.vhost
    _check(caller, kind, destination, source, routing_key)
    if kind == rights.QUEUE:
        vhost.bind_queue(destination, source, routing_key, arguments, caller.owner)
    else:
        vhost.bind_exchange(destination, source, routing_key, arguments)
    return _is_durable(vhost, kind, destination, source)


def unbind(caller, kind, destination, source, routing_key, arguments=None):
    """Unbind. Needs the rights of bind, even for a binding that is not there. Raises AccessRefused,
    ResourceLocked.
    """
    vhost = caller.vhost
    _check(caller, kind, destination, source, routing_key)
    if kind == rights.QUEUE:
        vhost.unbind_queue(destination, source, routing_key, arguments, caller.owner)
    else:
        vhost.unbind_exchange(destination, source, routing_key, arguments)
    return _is_durable(vhost, kind, destination, source)


def _check(caller, kind, destination, source, routing_key):
    """In RabbitMQ's order: the destination, the default exchange at either end, the source."""
    vhost, access = caller.vhost, caller.access
    source, destination = cleaned(source), cleaned(destination)
    write, read = rights.to_bind(source, kind, destination)
    access.check([write])
    if kind == rights.EXCHANGE:
        vhost.check_not_default(destination)
    vhost.check_not_default(source)
    access.check([read])
    access.read_topic(vhost.exchanges.get(source), routing_key)


def _is_durable(vhost, kind, destination, source):
    """Whether a binding between them is kept over a restart, or was until one of them went."""
    exchange = vhost.exchanges.get(cleaned(source))
    if exchange is None:
        return True  # one that went with its last binding, say, may not be gone on the disk yet
    if kind == rights.EXCHANGE:
        return exchange.durable
    queue = vhost.queues.get(cleaned(destination))
    return queue is None or queue.durable and exchange.durable
