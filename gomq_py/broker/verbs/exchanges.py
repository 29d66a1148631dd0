"""Declares and deletes exchanges, after a check of the caller's rights.

The vhost has the rules of exchanges. Protocol servers translate the errors.
"""
from typing import Any, NamedTuple

from gomq_py.broker.features import alternate_exchange
from gomq_py.broker.names import check_not_reserved, cleaned
from gomq_py.broker.routing.routing import with_properties
from gomq_py.broker.routing.trial import try_out
from gomq_py.broker.verbs.access import EXCHANGE


class DeclaredExchange(NamedTuple):
    """Result of declare(). ``durable``: True if the client's answer must wait for the disk."""

    exchange: Any
    created: bool
    durable: bool


def declare(caller, name, type_, durable=False, auto_delete=False, internal=False, arguments=None):
    """Declare an exchange. Returns DeclaredExchange. Needs configure. A new exchange with an alternate
    exchange needs read, too, and write on the alternate. Raises AccessRefused, OutOfResources,
    PreconditionFailed, UnknownType.
    """
    vhost, name, arguments = caller.vhost, cleaned(name), arguments or {}
    vhost.kinds.declarable_exchange_type(type_)  # first, as in RabbitMQ
    vhost.check_not_default(name)
    caller.access.check_configure(EXCHANGE, name)
    created = name not in vhost.exchanges
    if created:
        check_not_reserved(EXCHANGE, name, vhost.kinds.reserved_prefixes)
    caller.access.check_hand_on(EXCHANGE, name, vhost.exchanges, arguments, alternate_exchange.ARGUMENTS)
    exchange = vhost.declare_exchange(name, type_, durable, auto_delete, internal, arguments)
    return DeclaredExchange(exchange, created, exchange.durable)


def to_look_at(caller, name):
    """Return an exchange that the caller wants to inspect. Needs read. Raises AccessRefused, NotFound."""
    caller.access.check_read(EXCHANGE, cleaned(name))
    return passive_declare(caller, name)


def try_route(vhost, exchange, routing_key, envelope, now_ms):
    """Find where a message with this Envelope would go, without publishing it. Returns a routing.trial.Trial.
    Needs no right, because lists of bindings show the same. Raises PreconditionFailed. May switch greenlets.
    """
    headers = envelope.headers()
    if vhost.needs_properties:
        headers = with_properties(headers, envelope.properties())
    return try_out(vhost, exchange, (routing_key, *envelope.more_keys()), headers, now_ms)


def passive_declare(caller, name):
    """Return an exchange. Needs no right. Raises NotFound, or AccessRefused for the default exchange."""
    caller.vhost.check_not_default(cleaned(name))
    return caller.vhost.exchange(name)


def delete(caller, name, if_unused=False):
    """Delete an exchange. Returns True if the client's answer must wait for the disk. Needs configure, even
    for a missing exchange. Raises AccessRefused, OutOfResources, PreconditionFailed.
    """
    name = cleaned(name)
    caller.vhost.check_not_default(name)
    caller.access.check_configure(EXCHANGE, name)
    exchange = caller.vhost.delete_exchange(name, if_unused)
    return exchange is None or exchange.durable  # a missing exchange may have been deleted a moment ago
