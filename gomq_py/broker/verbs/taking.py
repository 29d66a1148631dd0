"""Taking: messages out of a queue without a channel; in the end they are put back, rejected or acknowledged.

For doors that show messages to an operator. They wait in a greenlet of their own.
"""
from gomq_py.broker.signals import tracing
from gomq_py.broker.verbs import queues
from gomq_py.broker.verbs.publishing import traced
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.hub.turns import give_way
from gomq_py.storage.message import Message

# Octets of bodies taken for one answer, in which they stand once more as JSON; who goes beyond is the last.
TAKEN_OCTETS_MAX = 16 * 1024 * 1024


def take(caller, name, count, requeue, reject):
    """Read. Up to ``count`` messages as (describe(), exchange, routing key, properties, body, ready ones
    left).

    They are put back (``requeue``), rejected (``reject``) or else acknowledged, but only after the last was
    taken, so that no message is seen twice; until then they are unacknowledged, as with any consumer. Fewer
    where their bodies come to TAKEN_OCTETS_MAX. Raises AccessRefused, NotFound, ResourceLocked. May switch.
    """
    queue, vhost = queues.to_take_from(caller, name), caller.vhost
    taken, locations = [], []
    message = Message()
    octets = 0
    clock = SliceClock()
    try:
        while len(taken) < count and octets < TAKEN_OCTETS_MAX and _get(queue, message):
            facts = message.describe()
            locations.append(facts["location"])
            if vhost.tracing:
                message.own()  # the store shows something else when the copy is published
                tracing.delivered(vhost, traced(caller), message, queue.name)
            body = message.get_body()
            octets += len(body)
            routing = message.get_exchange(), message.get_routing_key()
            taken.append((facts, *routing, message.get_properties(), body, queue.ready_count))
            if clock.is_over():
                give_way()
                clock.begin()
        locations.reverse()
        while locations:
            _done_with(queue, locations.pop(), requeue, reject)
            if clock.is_over():
                give_way()
                clock.begin()
    finally:
        for location in locations:  # the request ended before its time: nobody has seen them
            queue.requeue(location)
        queue.wake()
    return taken


def _get(queue, message):
    """As Queue.get, once files that the message lies in are open. May switch."""
    while not queue.get(message, False):
        if not queue.is_opening():
            return False
        queues.until_opened(queue)
    return True


def _done_with(queue, location, requeue, reject):
    if requeue:
        queue.requeue(location)
    elif reject:
        queue.reject(location, False)
    else:
        queue.settle(location)
