"""Routing: finds every queue that a message to an exchange reaches, over exchange bindings and alternates,
and invalidates cached routes.

This is the part of a vhost that works for each message; it declares nothing. A route stays valid until its
exchange's revision changes: a change of an exchange increments the revision of all exchanges that lead to it.
Routes include tees, so tees cost nothing where they are not used.
"""
from gomq_py.broker.exchanges.consistent_hash import PROPERTIES
from gomq_py.broker.exchanges.delayed import X_DELAY
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.features.alternate_exchange import alternate_of
from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.content.properties import Properties


class Routing:
    """Routes messages; the base class of VHost. ``exchanges`` and ``queues`` are dicts by name;
    ``bindings_to(destination)`` returns the bindings that lead to a destination.
    """

    def __init__(self, bindings_to):
        self.exchanges = {}
        self.queues = {}
        self._bindings_to = bindings_to
        self.needs_properties = False  # an exchange hashes properties
        self._alternates = {}  # name of an alternate exchange: {exchange that uses it: None}
        self._onward_of = {}  # exchange: {exchange that sends all its messages to it: None}
        self._tees = {}  # queue or exchange: name of its tee stream
        self._teed = {}  # name of a tee stream: {queue or exchange: None}

    def route(self, exchange, routing_key, headers=None, more_keys=(), apart=None, left_out=()):
        """Every queue and sink that a message to ``exchange`` reaches, each once, over exchange bindings,
        alternates and onward exchanges, which may form cycles. Tees come last.

        ``more_keys``: keys of CC and BCC; the alternate exchange is used if no key matches. ``apart``: a
        queue whose messages are being moved; it is left out, and so are all tees: a tee might be the only
        destination to take a message that its queue refuses. ``left_out``: destinations to leave out, with
        their tees.
        """
        return tuple(self._reach(exchange, routing_key, headers, more_keys, apart, left_out)[0])

    def route_message(self, exchange, message, headers, more_keys):
        """Like route(), for a stored message with these headers."""
        if self.needs_properties:
            headers = with_properties(headers, Properties.decode(message.get_properties()))
        routing_key = message.get_routing_key().decode("utf-8", "surrogateescape")
        return self.route(exchange, routing_key, headers, more_keys)

    def route_by_key(self, exchange, routing_key, more_keys=()):
        """The destinations of all messages with these keys; None if an exchange on the way needs headers."""
        found = self.route_watching(exchange, routing_key, more_keys=more_keys)
        return found[0] if found is not None and found[1] is None else None

    def route_watching(self, exchange, routing_key, headers=None, more_keys=()):
        """(destinations, header name) for all messages with this key that have the same list (or no list) in
        that header as ``headers`` has. The name is None if no exchange on the way needs headers. Returns None
        if an exchange needs other headers.
        """
        found, passed = self._reach(exchange, routing_key, headers, more_keys)
        if exchange.deduplication is not None:
            return None
        watched = None
        for each in passed:
            if each.needs_headers:
                if each.watched_list is None or watched not in (None, each.watched_list):
                    return None
                watched = each.watched_list
        return tuple(found), watched

    def route_by_delay(self, exchange, routing_key):
        """(destinations of messages with this key that are not delayed, destinations of delayed ones); None
        if an exchange on the way needs other headers.
        """
        if exchange.deduplication is not None:
            return None
        found, passed = self._reach(exchange, routing_key, None, ())
        delayed, passed_by_delayed = self._reach(exchange, routing_key, {X_DELAY: 1}, ())
        for each in passed | passed_by_delayed:
            if each.needs_headers and (each.delayed_store is None or each.inner.needs_headers):
                return None
        return tuple(found), tuple(delayed)

    def _reach(self, exchange, routing_key, headers, more_keys, apart=None, left_out=()):
        """(destinations in the order found, exchanges passed), as keys of dicts. Arguments as of route()."""
        found = {}
        seen = {exchange: None}
        ahead = [exchange]
        while ahead:
            current = ahead.pop()
            matched = {}  # as an ordered set
            current.match(routing_key, headers, matched)
            for key in more_keys:
                current.match(key, headers, matched)
            for destination in current.departed:
                matched.pop(destination, None)
            if (
                not matched and current.alternate is not None and current.alternate in self.exchanges
                and not takes_onward(current, (routing_key, *more_keys))
            ):
                matched[self.exchanges[current.alternate]] = None
            if current.onward is not None:
                matched[current.onward] = None
            for destination in matched:
                if not isinstance(destination, Exchange):
                    found[destination] = None
                elif destination not in seen:
                    seen[destination] = None
                    ahead.append(destination)
        for destination in left_out:
            found.pop(destination, None)
        if apart is not None:
            found.pop(apart, None)
        elif self._tees and found:
            self._add_tees(found, seen)
        return found, seen

    # tees

    def _add_tees(self, found, passed):
        """Add the tee streams of these destinations and of the exchanges passed.

        Called only if a destination was found: tees must not hide that no queue takes a publisher's messages.
        """
        names = [self._tees.get(destination) for destination in found]
        # A delayed message is routed when it is due.
        names += [self._tees.get(exchange) for exchange in passed
                  if exchange.delayed_store is None or exchange.delayed_store not in found]
        for name in names:
            stream = self.queues.get(name)
            if stream is not None and queue_type_of(stream.arguments) == STREAM:
                found[stream] = None

    def set_tee(self, entity, name):
        """Set the name of an entity's tee, a stream that need not exist yet; None: no tee."""
        if name == self._tees.get(entity):
            return
        self.forget_tee(entity)
        if name is not None:
            self._tees[entity] = name
            self._teed.setdefault(name, {})[entity] = None
        if isinstance(entity, Exchange):
            self.routes_changed(entity)
            return
        for source in {binding.source for binding in self._bindings_to(entity)}:
            self.routes_changed(source)
        self.routes_changed(self.exchanges[""])

    def forget_tee(self, entity):
        name = self._tees.pop(entity, None)
        if name is not None:
            del self._teed[name][entity]
            if not self._teed[name]:
                del self._teed[name]

    def tee_of(self, entity):
        """The existing tee stream of a queue or exchange, or None."""
        stream = self.queues.get(self._tees.get(entity))
        return stream if stream is not None and queue_type_of(stream.arguments) == STREAM else None

    def tee_changed(self, name):
        """Invalidate routes after a queue that may be a tee, by its name, was created or deleted."""
        if name in self._teed:
            # Cheaper than routes_changed() for each entity: there may be 100 000 queues.
            for exchange in self.exchanges.values():
                exchange.state.revision += 1

    # alternates

    def set_alternate(self, exchange, from_policy):
        """Set the exchange's alternate from its argument, or else its policy."""
        alternate = alternate_of(exchange.arguments, from_policy)
        if alternate == exchange.alternate:
            return
        self.forget_alternate(exchange)
        exchange.alternate = alternate
        if alternate is not None:
            self._alternates.setdefault(alternate, {})[exchange] = None
        self.routes_changed(exchange)

    def forget_alternate(self, exchange):
        users = self._alternates.get(exchange.alternate)
        if users is not None:
            users.pop(exchange, None)
            if not users:
                del self._alternates[exchange.alternate]

    # onward

    def set_onward(self, exchange, onward):
        """Make ``exchange`` send all its messages also to the exchange ``onward``; None ends this. The
        alternate gets a message if neither the bindings nor ``onward`` have a destination for it.
        """
        if exchange.onward is onward:
            return
        self._part_from_onward(exchange)
        exchange.onward = onward
        if onward is not None:
            self._onward_of.setdefault(onward, {})[exchange] = None
        self.routes_changed(exchange)

    def forget_onward(self, exchange):
        """Remove a deleted exchange from the onward links."""
        self._part_from_onward(exchange)
        for source in list(self._onward_of.get(exchange, ())):
            self.set_onward(source, None)

    def _part_from_onward(self, exchange):
        sources = self._onward_of.get(exchange.onward)
        if sources is not None:
            del sources[exchange]
            if not sources:
                del self._onward_of[exchange.onward]
            exchange.onward = None

    def routes_changed(self, exchange):
        """Invalidate cached routes of this exchange and of every exchange that leads to it."""
        seen = {exchange}
        ahead = [exchange]
        while ahead:
            current = ahead.pop()
            current.state.revision += 1
            upstream = [binding.source for binding in self._bindings_to(current)]
            upstream.extend(self._alternates.get(current.name, ()))
            upstream.extend(self._onward_of.get(current, ()))
            for source in upstream:
                if source not in seen:
                    seen.add(source)
                    ahead.append(source)

    def alternate_changed(self, name):
        """Invalidate routes after an exchange of this name, used as an alternate, was created or deleted."""
        for user in self._alternates.get(name, ()):
            self.routes_changed(user)


def takes_onward(exchange, keys):
    """True if ``exchange.onward`` has a destination for a message with these keys. The destination that only
    keeps retained messages does not count, because no subscriber gets the message from there.
    """
    onward, taken = exchange.onward, {}
    for key in keys if onward is not None else ():
        onward.match(key, None, taken)
    return bool(taken)


def published(message, destinations):
    """Publish the message to each destination. Returns the destinations whose stores cannot take it now."""
    return [
        destination for destination in destinations if not destination.publish(message) and destination.unable
    ]


def with_properties(headers, properties):
    """The headers plus decoded ``properties`` that an exchange may hash, under names that no client uses (a
    NUL in front).
    """
    found = {f"\0{name}": getattr(properties, name) for name in PROPERTIES}
    return {**(headers or {}), **{name: value for name, value in found.items() if value is not None}}
