"""Checks the rights that an operator needs to move, copy or replay a queue's messages.

Each function returns the queue and a ``route`` function for broker.transfer.moves.Move, which does the work.
"""
from gomq_py.broker.names import described
from gomq_py.broker.transfer.moves import to_origin, to_queue
from gomq_py.broker.verbs import queues
from gomq_py.errors import AccessRefused


def to_another_queue(caller, name, target_caller, target, keep=False):
    """Prepare a move or, with ``keep``, a copy of messages to a queue ``target`` in ``target_caller.vhost``.
    Needs read on the queue ``name`` and write on ``target``, which must not be an MQTT session's. Returns
    (queue, route function for Move). Raises AccessRefused, NotFound, ResourceLocked.
    """
    queue = _source(caller, name)
    if not keep:
        queue.check_taking()
    target_caller.access.check_write("queue", target.name)
    if target.is_state:
        where = described("queue", target.name, target_caller.vhost.name)
        raise AccessRefused(f"cannot put messages into {where}: its client gets what it has subscribed to")
    may_put = target_caller.access.may_write
    return queue, _while_allowed(caller, queue, to_queue(target), lambda: may_put(target.name))


def to_where_they_died(caller, name, to="queue", clean=False):
    """Prepare the replay of dead letters. Returns (queue, route function for Move). Needs read on the
    queue. Each message needs write on its new queue, or on its new exchange with its routing keys. ``to``,
    ``clean``: see broker.transfer.moves.to_origin(). Raises AccessRefused, NotFound, ResourceLocked.
    """
    queue, access = _source(caller, name), caller.access
    queue.check_taking()

    def may_publish(exchange, routing_keys):
        return access.may_publish(exchange, *routing_keys)

    route = to_origin(caller.vhost, queue, access.may_write, may_publish, to, clean)
    return queue, _while_allowed(caller, queue, route)


def _while_allowed(caller, queue, route, may_put=lambda: True):
    """Make a ``route`` function that checks the rights again for each message, then calls ``route``."""

    def asking(message):
        if not caller.access.may_read(queue.name):
            return None, f"no permission any more to read queue '{queue.name}'", None
        if not may_put():
            return None, "no permission any more to write to the destination", None
        return route(message)

    return asking


def _source(caller, name):
    queue = queues.to_look_at(caller, name)
    caller.vhost.check_access(queue, caller.owner)
    return queue
