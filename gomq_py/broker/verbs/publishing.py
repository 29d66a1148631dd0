"""Publishing: checks, routes, stores and counts a published message.

    prepare            checks and routes a client's message, and makes a Publication
    store              gives a Publication to its destinations; the caller then answers its client
    store_and_wait     does the same for callers that can wait

The protocol servers call these. AMQP and MQTT connections have a fast path for plain messages. It takes the
route from ``remembered_route`` and stores the messages itself. A property test compares the two paths.
"""
from operator import attrgetter

from gevent.event import Event

from gomq_py.broker.envelope import check_user_id
from gomq_py.broker.names import TOPIC_ADDRESS, cleaned, to_octets, to_text
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing.route import LATER, Route
from gomq_py.broker.routing.routing import with_properties
from gomq_py.broker.signals import tracing
from gomq_py.broker.verbs import schedules
from gomq_py.broker.verbs.blocked_publish import BlockedPublish
from gomq_py.content.fields import encode_shortstr
from gomq_py.content.properties import Properties
from gomq_py.errors import AccessRefused
from gomq_py.hub.scheduler import unix_ms
from gomq_py.storage.message import Message


_takes_publishes_only = attrgetter("takes_publishes_only")


class Publication:
    """A checked message and its destinations. After storing, ``taken`` is True if all destinations stored the
    message, ``somebody_took`` if at least one did. Without ``destinations`` the message is unroutable or a
    duplicate.
    """

    __slots__ = (
        "exchange", "message", "destinations", "awaited", "more_keys", "mandatory", "durable", "seen",
        "taken", "somebody_took",
    )

    def __init__(self, exchange, message, destinations, more_keys=(), mandatory=False):
        self.exchange = exchange
        self.message = message
        self.more_keys = more_keys
        self.mandatory = mandatory
        self._lead_to(destinations)
        self.seen = None  # (id, its own ttl), if the exchange deduplicates
        self.taken = self.somebody_took = False

    def _lead_to(self, destinations):
        self.destinations = self.awaited = destinations
        self.durable = self.message.describe()["persistent"] and any(one.durable for one in destinations)

    def committed(self, vhost, now_ms):
        """Restart the message's age for tx.commit, and drop deleted queues from ``destinations``. A retained
        message, or a message whose queues were all deleted, is routed again.
        """
        # A retained message is routed anew, for sessions that have subscribed since the publish.
        self.message.restamp(now_ms)
        there = [
            destination for destination in self.destinations
            if not isinstance(destination, Queue) or vhost.queues.get(destination.name) is destination
        ]
        if (there or not self.destinations) and not any(map(_takes_publishes_only, there)):
            self._lead_to(there)
        else:
            self.rerouted(vhost)

    def rerouted(self, vhost):
        """Route the message again, because no destination has stored it. Returns the new destinations."""
        headers = Properties.decode(self.message.get_properties()).headers
        destinations = vhost.route_message(self.exchange, self.message, headers, self.more_keys)
        self._lead_to(sorted(destinations, key=_takes_publishes_only, reverse=True))
        return self.destinations


# checking and routing

def remembered_route(access, vhost, exchange, routing_key, headers=None, tells_delayed=False):
    """Return a Route that the fast publish path may cache for messages of this exchange and routing key.
    Returns None if these messages must take the general path (prepare).

    ``headers``: the message's headers, needed only if the route depends on a list in a header.
    ``tells_delayed``: True if the caller recognises delayed messages. The Route may then have other
    destinations for delayed messages (``Route.delayed``).
    """
    found = vhost.exchanges.get(exchange)
    if not exchange and routing_key.startswith(TOPIC_ADDRESS):
        return None
    if found is None or found.internal or not access.may_publish(found, routing_key):
        return None
    ways = vhost.route_watching(found, routing_key, headers)
    if ways is None:
        return _route_by_delay(access, vhost, found, routing_key) if tells_delayed else None
    destinations, watched = ways
    return Route(
        destinations, found.state, access.state, b"" if watched is None else encode_shortstr(watched))


def _route_by_delay(access, vhost, exchange, routing_key):
    ways = vhost.route_by_delay(exchange, routing_key)
    if ways is None:
        return None
    at_once, delayed = ways
    return Route(
        at_once, exchange.state, access.state, delayed=Route(delayed, exchange.state, access.state))


def prepare(caller, exchange, routing_key, read, body, now_ms, mandatory=False):
    """Check and route a message. Returns a Publication. The checks are in RabbitMQ's order.

    Needs write on the exchange and, with a topic permission, write on each routing key. Then ``read(tables)``
    is called, which returns the message's Envelope (broker.envelope). Raises AccessRefused, NotFound,
    Malformed, PreconditionFailed, and the errors of ``read``.

    In the default exchange, a key ``amq.topic.TOPIC`` addresses the vhost's topic exchange with the key
    TOPIC, unless a queue has that name. So a reply_to may name a topic.
    """
    found, routing_key = _addressed(caller, exchange, routing_key)
    return checked(caller, found, routing_key, read, body, now_ms, mandatory)


def check_address(caller, exchange, routing_key):
    """Check exchange, routing key and rights of a message whose properties and body have not arrived yet."""
    found, routing_key = _addressed(caller, exchange, routing_key)
    caller.access.check_write_topic(found, (routing_key,))


def _addressed(caller, exchange, routing_key):
    vhost, name = caller.vhost, cleaned(exchange)
    if not name and routing_key.startswith(TOPIC_ADDRESS) and routing_key not in vhost.queues:
        key, topics = routing_key.removeprefix(TOPIC_ADDRESS), vhost.exchanges.get(vhost.topic_exchange)
        # The publisher of a reply did not choose the address: without write there, the reply gets no
        # destination, and no error.
        if topics is not None and caller.access.may_publish(topics, key):
            name, routing_key = topics.name, key
    caller.access.check_write("exchange", name)
    found = vhost.exchange(name)
    if found.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{found.name}' in vhost '{vhost.name}'")
    return found, routing_key


def checked(caller, exchange, routing_key, read, body, now_ms, mandatory=False):
    """Do as prepare() with an Exchange instead of its name. The right to write to it is not checked again."""
    vhost = caller.vhost
    caller.access.check_write_topic(exchange, (routing_key,))
    envelope = read(vhost.tables)
    check_user_id(envelope.user_id, caller.access.user)
    lives_ms = envelope.lives_ms()
    more_keys = envelope.more_keys()
    persistent = envelope.is_persistent()
    caller.access.check_write_topic(exchange, more_keys)  # RabbitMQ does not check CC and BCC
    headers = envelope.headers()
    octets, flags = envelope.octets(), envelope.flags
    if schedules.is_set(exchange, envelope, headers):
        octets = schedules.checked(caller, exchange, headers, octets, len(body), now_ms)
        destinations, flags, persistent = (exchange.delayed_store,), schedules.SCHEDULED, True
    else:
        if vhost.needs_properties:
            headers = with_properties(headers, envelope.properties())
        destinations = vhost.route(exchange, routing_key, headers, more_keys)
    if headers and len(destinations) > 1:  # a header may make the message a retained one
        # Retained messages come first: other destinations must not change their order in time.
        destinations = sorted(destinations, key=_takes_publishes_only, reverse=True)
    message = Message()
    message.assign(
        to_octets(exchange.name), to_octets(routing_key), octets, body, now_ms,
        expires_at_ms=0 if lives_ms is None else now_ms + lives_ms, priority=envelope.priority,
        persistent=persistent,
    )
    message.set_kind(envelope.kind, flags)
    publication = Publication(exchange, message, destinations, more_keys, mandatory)
    if exchange.deduplication is not None:
        publication.seen = exchange.deduplication.read(message.get_properties())
    return publication


# storing

def store(caller, publication, now_ms, wait=None):
    """Publish the message to its destinations. Returns True if all took it, otherwise False. If the
    destination with index ``at`` answers LATER, calls ``wait(publication, at, taken)`` and returns None.
    ``wait`` makes a BlockedPublish, whose ``done`` must call stored(). Without ``wait`` none answers LATER.
    """
    # The id is recorded first: a repeat must not be confirmed before this message is stored.
    is_noted = _is_noted(publication)
    publication.message.may_wait = wait is not None and not is_noted
    if is_noted and _is_duplicate(publication, now_ms):
        _follow_the_first(publication)
    vhost, message, destinations = caller.vhost, publication.message, publication.destinations
    publication.exchange.state.publish_in += 1
    if vhost.tracing:
        tracing.published(vhost, traced(caller), message, publication.more_keys, destinations)
    taken, somebody_took = True, False
    for at, destination in enumerate(destinations):
        answer = destination.publish(message)
        if answer == LATER:
            publication.somebody_took = publication.somebody_took or somebody_took
            wait(publication, at, taken)
            return None
        if answer:
            somebody_took = True
        else:
            taken = False
    stored(publication, taken, somebody_took)
    return taken


def begun(vhost, message, destinations, mandatory=False):
    """Count a message for which a destination answered LATER to the fast path. Returns its Publication."""
    exchange = vhost.exchange(to_text(message.get_exchange()))
    exchange.state.publish_in += 1
    return Publication(exchange, message, destinations, mandatory=mandatory)


def stored(publication, taken, somebody_took):
    """Record ``taken`` and ``somebody_took``, which Publication explains, and count the publish."""
    exchange, count = publication.exchange, len(publication.destinations)
    publication.taken = taken
    publication.somebody_took = publication.somebody_took or somebody_took
    exchange.state.publish_out += count
    if _is_noted(publication) and exchange.deduplication is not None:
        if not taken:
            exchange.deduplication.forget(publication.seen[0])  # its publisher may repeat it
        elif publication.durable and count:
            exchange.deduplication.until_safe(publication.seen[0], tuple(publication.destinations))
    if not count:
        exchange.state.unroutable += 1
        if publication.mandatory:
            exchange.state.returned += 1


def store_and_wait(caller, publication, scheduler):
    """Store a message, wait until all destinations have answered, and count the publish. Returns the
    Publication. For messages that did not come by an AMQP channel. May switch greenlets.
    """
    waited, now_ms = Event(), unix_ms()

    def end(taken, somebody_took):
        stored(publication, taken, somebody_took)
        waited.set()

    def wait(publication, at, taken):
        BlockedPublish(caller.vhost, scheduler, publication, at, taken, end)

    # In one batch with the store: a message with a TTL of 0 is delivered in this batch, or never.
    publication.message.restamp(now_ms)
    scheduler.begin(now_ms)
    try:
        taken = store(caller, publication, now_ms, wait)
    finally:
        scheduler.finish()
    caller.vhost.totals.publishes += 1
    if taken is None:
        waited.wait()
    return publication


def traced(caller):
    """Make the TracedClient that identifies the caller in traces."""
    return tracing.TracedClient(caller.connection_name, caller.channel_number, caller.access.user.name)


def _is_noted(publication):
    return publication.seen is not None and publication.seen[0] is not None


def _is_duplicate(publication, now_ms):
    """True if the exchange has seen the message's deduplication id. Otherwise remembers the id."""
    seen = publication.exchange.deduplication
    return seen is not None and not seen.take(*publication.seen, now_ms)


def _follow_the_first(publication):
    """Remove a duplicate's destinations. Its confirm waits until the first message of this id is on disk."""
    publication.destinations = ()
    queues = publication.exchange.deduplication.queues_of(publication.seen[0])
    publication.durable = queues is not None
    publication.awaited = queues or ()
