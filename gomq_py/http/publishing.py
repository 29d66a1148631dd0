"""Publishing and taking single messages for the API: the model's own verbs, in the broker's process, without a connection."""
from flask import g, request
from gevent.event import AsyncResult

from gomq_py.broker import tracing
from gomq_py.broker.destination import LATER
from gomq_py.broker.envelope import SECRET_KEYS, check_user_id, expiration_ms, is_persistent, keys_among
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.queues.scheduler import unix_ms
from gomq_py.broker.routing import with_properties
from gomq_py.broker.slice_clock import SliceClock
from gomq_py.broker.turns import give_way, until_opened
from gomq_py.http.answers import node
from gomq_py.http.errors import BadRequest
from gomq_py.storage.message import Message

# Octets of bodies taken for one answer, in which they stand once more as JSON; the message that goes beyond is the last.
TAKEN_OCTETS_MAX = 16 * 1024 * 1024


def publish(vhost, exchange, routing_key, properties, body):
    """Route one message and store it. Returns whether a queue took it. Raises Refused. May switch, where a queue needs files first."""
    key = routing_key.encode("utf-8")
    if len(key) > 255:
        raise BadRequest("a routing key is at most 255 octets")
    vhost.tables.check_table("headers", properties.headers)
    check_user_id(properties.user_id, g.user)
    persistent = is_persistent(properties.delivery_mode)
    lives_ms, more_keys = expiration_ms(properties.expiration), keys_among(properties.headers)
    headers = with_properties(properties.headers, properties)
    if properties.headers and SECRET_KEYS in properties.headers:
        properties.headers = {key: value for key, value in properties.headers.items() if key != SECRET_KEYS}
    octets, scheduler = properties.encode(), node().broker.scheduler
    now_ms = unix_ms()
    vhost.tables.check_properties(octets)
    seen = exchange.deduplication
    seen_id, seen_ttl_ms = (None, None) if seen is None else seen.read(octets)
    known = seen is not None and not seen.take(seen_id, seen_ttl_ms, now_ms)
    destinations = () if known else vhost.route(exchange, routing_key, headers, more_keys)
    message = Message()
    message.assign(
        exchange.name.encode("utf-8", "surrogateescape"), key, octets, body, now_ms, expires_at_ms=0 if lives_ms is None else now_ms + lives_ms,
        priority=properties.priority or 0, persistent=persistent)
    exchange.state.publish_in += 1
    exchange.state.publish_out += len(destinations)
    if not destinations:
        # As a mandatory publish: the answer says whether it was routed.
        exchange.state.unroutable += 1
        exchange.state.returned += 1
    vhost.totals.publishes += 1
    if vhost.tracing:
        tracing.published(vhost, _client(), message, more_keys, destinations)
    # An exchange that deduplicates has noted the id already: a repeat may not be answered before this is stored.
    message.may_wait = seen_id is None
    taken = [_publish(scheduler, vhost, destination, message) for destination in destinations]
    if not all(taken) and seen_id is not None:
        seen.forget(seen_id)  # whoever publishes may try again what a queue refused
    return any(taken)


def _publish(scheduler, vhost, destination, message):
    """Whether it took the message. May switch."""
    answer = _store(scheduler, destination, message)
    if answer != LATER:
        return bool(answer)
    stored = AsyncResult()

    def go_on(error):  # at once: files that are not taken now are another's
        if isinstance(destination, Queue) and vhost.queues.get(destination.name) is not destination:
            stored.set(0)  # deleted or restarted meanwhile
        elif error is not None:
            destination.not_stored(error)
            stored.set(0)
        elif (answer := _store(scheduler, destination, message)) == LATER:
            message.lacking(go_on)
        else:
            stored.set(answer)

    message.lacking(go_on)
    return bool(stored.get())


def _store(scheduler, destination, message):
    """A batch of its own: a message that lives no longer than this moment is delivered in it, or never. As Destination.publish."""
    now_ms = unix_ms()
    message.restamp(now_ms)
    scheduler.begin(now_ms)
    try:
        return destination.publish(message)
    finally:
        scheduler.finish()


def take(queue: Queue, count, requeue, reject):
    """Up to ``count`` messages as (Message facts) tuples, which then are acknowledged, rejected or put back, in this order of preference.

    Fewer where their bodies come to TAKEN_OCTETS_MAX. The caller's ``ack_requeue_true`` puts them back only after the last was taken, so that no
    message is seen twice. Until then they are unacknowledged, as with any consumer. May switch.
    """
    vhost = node().broker.vhosts[queue.vhost]
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
                tracing.delivered(vhost, _client(), message, queue.name)
            body = message.get_body()
            octets += len(body)
            taken.append((facts, message.get_exchange(), message.get_routing_key(), message.get_properties(), body, queue.ready_count))
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
        until_opened(queue)
    return True


def _done_with(queue, location, requeue, reject):
    if requeue:
        queue.requeue(location)
    elif reject:
        queue.reject(location, False)
    else:
        queue.settle(location)


def _client():
    """Who is told as the client in traces: RabbitMQ's API has a connection of its own for it, with one channel."""
    return tracing.Client(f"HTTP {request.remote_addr}", 1, g.user.name)
