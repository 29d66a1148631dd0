"""Taking: takes messages from a queue without a channel, then requeues, rejects or acknowledges them.

The HTTP API uses this module to show messages to an operator. Each request has its own greenlet.
"""
from gomq_py.broker.signals import tracing
from gomq_py.broker.verbs import queues
from gomq_py.broker.verbs.publishing import traced
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.turns import give_way
from gomq_py.storage.message import Message

# Octets of bodies after which an answer takes no more messages; the answer repeats them as JSON.
TAKEN_OCTETS_MAX = 16 * 1024 * 1024


def take(caller, name, count, requeue, reject):
    """Take up to ``count`` messages, then requeue, reject or acknowledge them. Stops taking when
    the bodies have TAKEN_OCTETS_MAX bytes. Returns a list of (Message.describe(), exchange, routing key,
    properties, body, count of ready messages left). Needs read. Raises AccessRefused, NotFound,
    ResourceLocked. May switch greenlets.
    """
    # All stay unacked until the last was taken, so that none is taken twice; then all are requeued
    # (``requeue``), rejected (``reject``) or acknowledged.
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
                message.own()  # its store's buffer is reused when the copy is published
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
        for location in locations:  # the request was aborted: the messages were not shown
            queue.requeue(location)
        queue.wake()
    return taken


def _get(queue, message):
    """Take the next message, once its files are open. Returns False without one. May switch greenlets."""
    while True:
        queue.turn_to(message)  # one for each request
        if queue.get(message, False):
            return True
        if not queue.is_opening():
            return False
        queues.until_opened(queue)


def _done_with(queue, location, requeue, reject):
    if requeue:
        queue.requeue(location)
    elif reject:
        queue.reject(location, False)
    else:
        queue.ack(location)
