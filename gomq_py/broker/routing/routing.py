"""Routing: finds every queue that a message to an exchange reaches, and invalidates cached routes.

Follows bindings between exchanges and alternate exchanges. A change of an exchange increments the revisions
of all exchanges that lead to it, which invalidates their routes. A *tee* is a stream that gets copies of all
messages of a queue or exchange; routes contain tees as destinations.
"""
from gomq_py.broker.exchanges.consistent_hash import PROPERTIES
from gomq_py.broker.exchanges.delayed import X_DELAY
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.features.alternate_exchange import alternate_of
from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.content.properties import Properties


class Routing:
    """Routes messages; the base class of VHost. ``exchanges`` and ``queues`` are dicts by name;
    ``bindings_to(destination)`` returns the bindings to a queue or exchange.
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
        """Return a tuple of all destinations that a message to ``exchange`` reaches, each once. Streams that
        only get copies (tees) come last.

        Follows exchange bindings, alternate exchanges and set_onward(). ``more_keys``: keys of CC and BCC; an
        alternate exchange is used if no key matches. ``left_out``: destinations to leave out, with their
        tees. ``apart``: a queue whose messages are being moved; it and all tees are left out.
        """
        # A tee must not be the only destination that takes a moved message.
        return tuple(self._reach(exchange, routing_key, headers, more_keys, apart, left_out)[0])

    def route_message(self, exchange, message, headers, more_keys):
        """Route a stored message with these headers to ``exchange``. Returns what route() returns."""
        if self.needs_properties:
            headers = with_properties(headers, Properties.decode(message.get_properties()))
        routing_key = message.get_routing_key().decode("utf-8", "surrogateescape")
        return self.route(exchange, routing_key, headers, more_keys)

    def route_by_key(self, exchange, routing_key, more_keys=()):
        """Return a tuple of destinations for these keys; None if they also depend on headers."""
        found = self.route_watching(exchange, routing_key, more_keys=more_keys)
        return found[0] if found is not None and found[1] is None else None

    def route_watching(self, exchange, routing_key, headers=None, more_keys=()):
        """Return (destinations, None) if all messages with this key have these destinations. Return
        (destinations, name of a header) if all messages with this key and the same list in that header have
        them. Return None if the destinations depend on headers in another way.
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
        """Return (destinations of messages without a delay, destinations of messages with a delay) for this
        key. Returns None if they also depend on other headers.
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
        """Return two dicts as ordered sets: (destinations, exchanges passed). Arguments as for route()."""
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
        # Called only if a destination was found: a tee must not hide that no queue takes a publisher's
        # message.
        names = [self._tees.get(destination) for destination in found]
        # A delayed message is routed when it is due.
        names += [self._tees.get(exchange) for exchange in passed
                  if exchange.delayed_store is None or exchange.delayed_store not in found]
        for name in names:
            stream = self.queues.get(name)
            if stream is not None and queue_type_of(stream.arguments) == STREAM:
                found[stream] = None

    def set_tee(self, entity, name):
        """Copy messages of a queue or exchange to the stream ``name``, if it exists; None ends this."""
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
        discard_from(self._teed, self._tees.pop(entity, None), entity)

    def tee_of(self, entity):
        """Return the stream that gets copies of a queue's or exchange's messages; None without one."""
        stream = self.queues.get(self._tees.get(entity))
        return stream if stream is not None and queue_type_of(stream.arguments) == STREAM else None

    def tee_changed(self, name):
        """Invalidate routes that copy messages to the stream ``name``, which was created or deleted."""
        if name in self._teed:
            # Cheaper than routes_changed() for each entity: there may be 100 000 queues.
            for exchange in self.exchanges.values():
                exchange.state.revision += 1

    # alternates

    def set_alternate(self, exchange, from_policy):
        """Set the name of the alternate exchange: the argument's or else ``from_policy``, a name or None."""
        alternate = alternate_of(exchange.arguments, from_policy)
        if alternate == exchange.alternate:
            return
        self.forget_alternate(exchange)
        exchange.alternate = alternate
        if alternate is not None:
            self._alternates.setdefault(alternate, {})[exchange] = None
        self.routes_changed(exchange)

    def forget_alternate(self, exchange):
        discard_from(self._alternates, exchange.alternate, exchange)

    # onward

    def set_onward(self, exchange, onward):
        """Make ``exchange`` also send every message to the exchange ``onward``; None ends this."""
        # The alternate exchange gets a message if neither the bindings nor ``onward`` have a destination for
        # it.
        if exchange.onward is onward:
            return
        self._part_from_onward(exchange)
        exchange.onward = onward
        if onward is not None:
            self._onward_of.setdefault(onward, {})[exchange] = None
        self.routes_changed(exchange)

    def forget_onward(self, exchange):
        """End all links made by set_onward() from or to a deleted exchange."""
        self._part_from_onward(exchange)
        for source in list(self._onward_of.get(exchange, ())):
            self.set_onward(source, None)

    def _part_from_onward(self, exchange):
        discard_from(self._onward_of, exchange.onward, exchange)
        exchange.onward = None

    def routes_changed(self, exchange):
        """Invalidate cached routes of this exchange and of all exchanges that lead to it."""
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
        """Invalidate routes of exchanges with the alternate exchange ``name``: it was created or deleted."""
        for user in self._alternates.get(name, ()):
            self.routes_changed(user)


def discard_from(groups, key, member):
    """Remove ``member`` from the dict at ``groups[key]``, if it is there, and a dict that is then empty."""
    group = groups.get(key)
    if group is not None:
        group.pop(member, None)
        if not group:
            del groups[key]


def takes_onward(exchange, keys):
    """True if the exchange set by set_onward() has a destination for a message with one of these keys."""
    # A destination that only stores retained messages does not count, because no subscriber gets the message
    # from there.
    onward, taken = exchange.onward, {}
    for key in keys if onward is not None else ():
        onward.match(key, None, taken)
    return bool(taken)


def published(message, destinations):
    """Publish the message to each destination. Returns the destinations that cannot store it now."""
    return [
        destination for destination in destinations if not destination.publish(message) and destination.unable
    ]


def with_properties(headers, properties):
    """Return headers plus the ``properties`` that an exchange may hash. Their keys begin with NUL."""
    # No client's header names do.
    found = {f"\0{name}": getattr(properties, name) for name in PROPERTIES}
    return {**(headers or {}), **{name: value for name, value in found.items() if value is not None}}
