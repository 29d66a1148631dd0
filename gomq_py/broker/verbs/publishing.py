"""Publishing: what a publish means: what is checked, where the message goes, who takes it, what is counted.

    prepare            content of a client -> Publication: checked and routed; what is wrong is raised here
    store              Publication -> its destinations; then the door answers its client
    store_and_wait     the same, for who has nothing else to do meanwhile

Between the doors and the vhost's routes. ``remembered_route`` serves fast lanes, which store by themselves
what needs no look; a property test holds both ways to the same answers.
"""
from operator import attrgetter

from gevent.event import Event

from gomq_py.broker.envelope import check_user_id
from gomq_py.broker.names import TOPIC_ADDRESS, cleaned
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing.destination import LATER
from gomq_py.broker.routing.route import Route
from gomq_py.broker.routing.routing import with_properties
from gomq_py.broker.signals import tracing
from gomq_py.broker.verbs.held_publish import HeldPublish
from gomq_py.content.fields import encode_shortstr
from gomq_py.content.properties import Properties
from gomq_py.errors import AccessRefused
from gomq_py.hub.scheduler import unix_ms
from gomq_py.storage.message import Message


_takes_publishes_only = attrgetter("takes_publishes_only")


class Publication:
    """A checked message and where it goes.

    Once it is stored, ``taken`` says whether all destinations took it and ``somebody_took`` whether one did;
    it was unroutable, or a duplicate, where it has no ``destinations``.
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
        self.seen = None  # (id, its own ttl) where the exchange deduplicates
        self.taken = self.somebody_took = False

    def _lead_to(self, destinations):
        self.destinations = self.awaited = destinations
        self.durable = self.message.describe()["persistent"] and any(one.durable for one in destinations)

    def committed(self, vhost, now_ms):
        """The transaction it waited for is committed: its time begins now, queues deleted meanwhile get
        nothing. What is retained goes to whoever has subscribed meanwhile, too, and has not been shown it.
        """
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
        """Nobody has it, and its destinations may not be right any more: it goes where it would go if it came
        now. Returns its destinations.
        """
        headers = Properties.decode(self.message.get_properties()).headers
        destinations = vhost.route_message(self.exchange, self.message, headers, self.more_keys)
        self._lead_to(sorted(destinations, key=_takes_publishes_only, reverse=True))
        return self.destinations


# checking and routing

def remembered_route(access, vhost, exchange, routing_key, headers=None, tells_delayed=False):
    """A Route: where all such messages go while it is current; None where each has to be looked at.

    ``headers`` with the list of a header that a Route of this key has said it depends on. Whose messages can
    hold no lists need not ask for that. ``tells_delayed``: the lane tells messages that are to wait from
    others, and takes Routes that go apart there.
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
    """A Publication, for who has write on the exchange, and on each routing key where those are limited.

    ``read(tables)`` gives the message's Envelope (broker.envelope), and is called when these rights are
    there. The checks are in RabbitMQ's order. Raises AccessRefused, NotFound, Malformed, PreconditionFailed,
    and what ``read`` raises.

    The default exchange takes a key that is the address of a topic to the vhost's exchange of topics, unless
    a queue has that name: so reply_to can be such an address.
    """
    found, routing_key = _addressed(caller, exchange, routing_key)
    return checked(caller, found, routing_key, read, body, now_ms, mandatory)


def check_address(caller, exchange, routing_key):
    """Raise what prepare() would of a message's address: for one of which little more has come than that."""
    found, routing_key = _addressed(caller, exchange, routing_key)
    caller.access.write_topic(found, (routing_key,))


def _addressed(caller, exchange, routing_key):
    vhost, name = caller.vhost, cleaned(exchange)
    if not name and routing_key.startswith(TOPIC_ADDRESS) and routing_key not in vhost.queues:
        key, topics = routing_key.removeprefix(TOPIC_ADDRESS), vhost.exchanges.get(vhost.topic_exchange)
        # Who answers a request has not chosen the address: where it may not write there, nobody gets it.
        if topics is not None and caller.access.may_publish(topics, key):
            name, routing_key = topics.name, key
    caller.access.write("exchange", name)
    found = vhost.exchange(name)
    if found.internal:
        raise AccessRefused(f"cannot publish to internal exchange '{found.name}' in vhost '{vhost.name}'")
    return found, routing_key


def checked(caller, exchange, routing_key, read, body, now_ms, mandatory=False):
    """As prepare(), for an Exchange that the caller need not have write on."""
    vhost = caller.vhost
    caller.access.write_topic(exchange, (routing_key,))
    envelope = read(vhost.tables)
    check_user_id(envelope.user_id, caller.access.user)
    lives_ms = envelope.lives_ms()
    more_keys = envelope.more_keys()
    persistent = envelope.is_persistent()
    caller.access.write_topic(exchange, more_keys)  # which RabbitMQ asks for nothing
    headers = envelope.headers()
    if vhost.needs_properties:
        headers = with_properties(headers, envelope.properties())
    destinations = vhost.route(exchange, routing_key, headers, more_keys)
    if headers and len(destinations) > 1:  # what is retained is, by a header
        # It has a place in time beside the routes: others must not hold it up.
        destinations = sorted(destinations, key=_takes_publishes_only, reverse=True)
    message = Message()
    message.assign(
        _octets(exchange.name), _octets(routing_key), envelope.octets(), body, now_ms,
        expires_at_ms=0 if lives_ms is None else now_ms + lives_ms, priority=envelope.priority,
        persistent=persistent,
    )
    message.set_kind(envelope.kind, envelope.flags)
    publication = Publication(exchange, message, destinations, more_keys, mandatory)
    if exchange.deduplication is not None:
        publication.seen = exchange.deduplication.read(message.get_properties())
    return publication


def _octets(name):
    return name.encode("utf-8", "surrogateescape")


# storing

def store(caller, publication, now_ms, wait=None):
    """Hand the message to its destinations. Returns whether all took it.

    Where a destination needs files for it first, ``wait(publication, at, taken)`` is called with its number,
    which makes a HeldPublish that calls ``stored`` in the end, and None returned. Without ``wait`` nothing
    waits.
    """
    # An exchange that deduplicates notes the id first: a repeat may not be confirmed while this is not
    # stored.
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
    """The Publication of a message that a fast lane has given to some of its destinations, until one answered
    LATER.
    """
    exchange = vhost.exchange(message.get_exchange().decode("utf-8", "surrogateescape"))
    exchange.state.publish_in += 1
    return Publication(exchange, message, destinations, mandatory=mandatory)


def stored(publication, taken, somebody_took):
    """All destinations have had the message: ``taken``, whether they took it; ``somebody_took``, whether one
    did.
    """
    exchange, count = publication.exchange, len(publication.destinations)
    publication.taken = taken
    publication.somebody_took = publication.somebody_took or somebody_took
    exchange.state.publish_out += count
    if _is_noted(publication) and exchange.deduplication is not None:
        if not taken:
            exchange.deduplication.forget(publication.seen[0])  # what a queue refused may be tried again
        elif publication.durable and count:
            exchange.deduplication.until_safe(publication.seen[0], tuple(publication.destinations))
    if not count:
        exchange.state.unroutable += 1
        if publication.mandatory:
            exchange.state.returned += 1


def store_and_wait(caller, publication, scheduler):
    """Store it for who has no channel: the vhost counts it. Returns the Publication. May switch."""
    waited, now_ms = Event(), unix_ms()

    def end(taken, somebody_took):
        stored(publication, taken, somebody_took)
        waited.set()

    def wait(publication, at, taken):
        HeldPublish(caller.vhost, scheduler, publication, at, taken, end)

    # A batch of its own: a message that lives no longer than this moment is delivered in it, or never.
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
    """How traces tell of the caller."""
    return tracing.Client(caller.connection_name, caller.channel_number, caller.access.user.name)


def _is_noted(publication):
    """Whether its exchange deduplicates, and it has an id."""
    return publication.seen is not None and publication.seen[0] is not None


def _is_duplicate(publication, now_ms):
    """Whether its exchange has seen the message's id, which is noted if not."""
    seen = publication.exchange.deduplication
    return seen is not None and not seen.take(*publication.seen, now_ms)


def _follow_the_first(publication):
    """A duplicate goes nowhere, and is safe when the first of its id is."""
    publication.destinations = ()
    queues = publication.exchange.deduplication.queues_of(publication.seen[0])
    publication.durable = queues is not None
    publication.awaited = queues or ()
