"""Binding: one rule of an exchange, which leads to a queue or another exchange. A value; the exchange matches
it, the vhost keeps both ends in step.
"""
from base64 import urlsafe_b64encode
from functools import lru_cache
from urllib.parse import quote_plus

from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.digests import md5


class Binding:
    """``source`` is an Exchange, ``destination`` a queue or an Exchange; bindings of one source with equal
    ``identity`` are the same.
    """

    __slots__ = ("source", "destination", "routing_key", "arguments", "identity")

    def __init__(self, source, destination, routing_key, arguments=None):
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = arguments or {}
        self.identity = identity_of(destination, routing_key, self.arguments)

    @property
    def durable(self):
        """Whether it outlives a restart: both ends must."""
        return self.source.durable and self.destination.durable

    @property
    def destination_type(self):
        """ "exchange" or "queue"; a sink counts as a queue."""
        return "exchange" if isinstance(self.destination, Exchange) else "queue"

    @property
    def properties_key(self):
        """The name of this binding in URLs: the percent-encoded key, and a digest of any arguments."""
        if not self.arguments:
            return escaped(self.routing_key) or "~"
        digest = md5(
            repr(frozen(self.arguments)).encode("utf-8", "surrogateescape"), usedforsecurity=False
        ).digest()
        return f"{escaped(self.routing_key)}~{urlsafe_b64encode(digest).rstrip(b'=').decode()}"

    def __repr__(self):
        return (
            f"<Binding {self.source.name!r} -> {self.destination.name!r} by {self.routing_key!r} "
            f"{self.arguments or ''}>"
        )


def escaped(routing_key):
    """A routing key as part of a properties key: percent-encoded as RabbitMQ does, a space as ``+``, and
    ``~`` too, which divides key from digest.
    """
    return quote_plus(routing_key, safe="", errors="surrogateescape").replace("~", "%7E")


def identity_of(destination, routing_key, arguments):
    """A hashable value that is equal for equal bindings of one source."""
    return (destination, routing_key, _same(frozen(arguments)) if arguments else ())


@lru_cache(64)
def _same(value):
    """The first of equal values: very many bindings share equal arguments."""
    return value


def frozen(value):
    """A hashable twin of a decoded field value; tables lose their order, booleans stay apart from numbers."""
    if isinstance(value, dict):
        return tuple(sorted(((key, frozen(item)) for key, item in value.items()), key=lambda entry: entry[0]))
    if isinstance(value, list):
        return ("array", *(frozen(item) for item in value))
    if isinstance(value, bool):
        return ("bool", value)
    return value
