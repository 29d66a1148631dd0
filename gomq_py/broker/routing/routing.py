"""Routing: from an exchange to every queue that a message reaches, over bindings between exchanges and
alternates, and what cached routes depend on.

The part of a vhost that is asked per message; it decides nothing about declaring. A route that was found
stays right until the revision of its exchange changes: whoever changes what an exchange leads to tells all
that lead to it. A tee is part of the route, and so costs nothing where there is none.
"""
from gomq_py.broker.exchanges.consistent_hash import PROPERTIES
from gomq_py.broker.exchanges.delayed import X_DELAY
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.features.alternate_exchange import alternate_of
from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.content.properties import Properties


class Routing:
    """Base of VHost. ``exchanges`` and ``queues`` are by name; ``bindings_to(destination)`` returns the
    bindings that lead to it.
    """

    def __init__(self, bindings_to):
        self.exchanges = {}
        self.queues = {}
        self._bindings_to = bindings_to
        self.needs_properties = False  # some exchange looks at properties besides headers
        self._alternates = {}  # name of an alternate exchange: {exchange that uses it: None}
        self._onward_of = {}  # exchange: {exchange that hands on to it: None}
        self._tees = {}  # queue or exchange: name of the stream that gets what it gets
        self._teed = {}  # name of such a stream: {queue or exchange: None}

    def route(self, exchange, routing_key, headers=None, more_keys=(), apart=None, left_out=()):
        """Every queue and sink that a message to ``exchange`` reaches, each once: over exchange bindings,
        alternates and what an exchange hands on, which may form cycles. Tees come last.

        ``more_keys`` are those of CC and BCC; an alternate exchange is asked when none of the keys matches.
        ``apart`` is a queue whose messages somebody moves. It is left out, as if nothing led to it, and no
        tee gets anything: a tee might be the only one to take a message that its queue refuses. Destinations
        that are ``left_out`` are left out, too, and so are their tees.
        """
        return tuple(self._reach(exchange, routing_key, headers, more_keys, apart, left_out)[0])

    def route_message(self, exchange, message, headers, more_keys):
        """As route(), of a stored message with these headers."""
        if self.needs_properties:
            headers = with_properties(headers, Properties.decode(message.get_properties()))
        routing_key = message.get_routing_key().decode("utf-8", "surrogateescape")
        return self.route(exchange, routing_key, headers, more_keys)

    def route_by_key(self, exchange, routing_key, more_keys=()):
        """As route() without knowing the headers: None where an exchange on the way looks at them."""
        found = self.route_watching(exchange, routing_key, more_keys=more_keys)
        return found[0] if found is not None and found[1] is None else None

    def route_watching(self, exchange, routing_key, headers=None, more_keys=()):
        """(destinations, name of a header): where all messages with this key go that have the same list in
        the header of this name as ``headers`` has, or none there as well. The name is None where no exchange
        on the way looks at headers; None instead of both where one looks at others.
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
        """(destinations of messages with this key that are not to wait, of those that are); None where an
        exchange on the way looks at other headers than those that say so.
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
        """Destinations in the order they were found, and the exchanges passed on the way."""
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
        """Add the streams that get what these destinations, and the exchanges passed on the way, get.

        Only where something was found: a tee must not hide from a publisher that no queue takes its messages.
        """
        names = [self._tees.get(destination) for destination in found]
        # What an exchange delays is routed when its time has come.
        names += [self._tees.get(exchange) for exchange in passed
                  if exchange.delayed_store is None or exchange.delayed_store not in found]
        for name in names:
            stream = self.queues.get(name)
            if stream is not None and queue_type_of(stream.arguments) == STREAM:
                found[stream] = None

    def set_tee(self, entity, name):
        """What the queue or exchange gets goes to the stream of this name as well, while there is one; None:
        to no other.
        """
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
        """The stream that gets what the queue or exchange gets, or None."""
        stream = self.queues.get(self._tees.get(entity))
        return stream if stream is not None and queue_type_of(stream.arguments) == STREAM else None

    def tee_changed(self, name):
        """A queue of this name came or went: what goes to it as to a tee is routed differently now."""
        if name in self._teed:
            # Not routes_changed() of each that has it: there may be 100 000 queues.
            for exchange in self.exchanges.values():
                exchange.state.revision += 1

    # alternates

    def set_alternate(self, exchange, from_policy):
        """The exchange's alternate is what its argument says, or else its policy."""
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
        """``exchange`` hands all that it gets to the exchange ``onward``, besides what it routes by its
        bindings or, where neither of the two has a destination, to its alternate. None: to nobody.
        """
        if exchange.onward is onward:
            return
        self._part_from_onward(exchange)
        exchange.onward = onward
        if onward is not None:
            self._onward_of.setdefault(onward, {})[exchange] = None
        self.routes_changed(exchange)

    def forget_onward(self, exchange):
        """The exchange is gone: it hands on nothing, and nothing is handed to it."""
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
        """What this exchange routes may have changed: throw away cached routes of it and of every exchange
        that leads to it.
        """
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
        """An exchange of this name came or went: those that use it as their alternate route differently now.
        """
        for user in self._alternates.get(name, ()):
            self.routes_changed(user)


def takes_onward(exchange, keys):
    """Whether a message with these keys is taken behind the exchange that this one hands on to. What is kept
    as a retained message, which the headers say, is not: no subscriber has it.
    """
    onward, taken = exchange.onward, {}
    for key in keys if onward is not None else ():
        onward.match(key, None, taken)
    return bool(taken)


def published(message, destinations):
    """Publish the message to each destination. Returns those whose stores cannot take it now."""
    return [
        destination for destination in destinations if not destination.publish(message) and destination.unable
    ]


def with_properties(headers, properties):
    """The headers, and with them the properties that an exchange may hash by, under names that no client uses
    (a NUL in front).

    ``properties``: decoded Properties.
    """
    found = {f"\0{name}": getattr(properties, name) for name in PROPERTIES}
    return {**(headers or {}), **{name: value for name, value in found.items() if value is not None}}
