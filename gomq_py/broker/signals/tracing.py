"""Firehose: copies every message that clients publish or get in a traced vhost to ``amq.rabbitmq.trace``.

The code for publishes and deliveries calls it if ``vhost.tracing`` is on. The exchange, routing keys
(``publish.<exchange>``, ``deliver.<queue>``) and headers are RabbitMQ's. The copies themselves, and messages
that the broker moves (dead letters, delayed messages), are not traced. A failed copy is only logged. Never
switches greenlets.
"""
from gomq_py.broker.exchanges.types import TRACE
from gomq_py.broker.names import to_octets, to_text
from gomq_py.broker.signals.events import node_name, told_in_headers
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.message import Message

QUIET = QuietLog(logger("queue"))


class TracedClient:
    """The client in a trace: the names of ``connection`` and ``user``, the number of ``channel``."""

    __slots__ = ("connection", "channel", "user")

    def __init__(self, connection, channel, user):
        self.connection = connection
        self.channel = channel
        self.user = user


def published(vhost, client, message, more_keys, destinations):
    """Trace a message that a client publishes. ``more_keys``: the routing keys in CC and BCC.
    ``destinations``: the queues and other destinations that the message was routed to.
    """
    _trace(_published, vhost, client, message, more_keys, destinations)


def delivered(vhost, client, message, queue_name, added=None):
    """Trace a delivery from a queue to a client. ``added``: headers that only this delivery has."""
    _trace(_delivered, vhost, client, message, queue_name, added)


def _trace(make, vhost, *of):
    try:
        make(vhost, *of)
    except Exception as error:
        QUIET.error(
            vhost.name, "vhost '%s': a message is not traced: its copy cannot be made", vhost.name,
            exc_info=error,
        )


def _published(vhost, client, message, more_keys, destinations):
    exchange = to_text(message.get_exchange())
    headers = _headers(vhost, client, message, (to_text(message.get_routing_key()), *more_keys))
    headers["routed_queues"] = [destination.name for destination in destinations]
    _publish(vhost, f"publish.{exchange}", exchange, headers, message)


def _delivered(vhost, client, message, queue_name, added):
    exchange = to_text(message.get_exchange())
    headers = _headers(vhost, client, message, (to_text(message.get_routing_key()),))
    if added:
        headers["properties"] = {
            **headers["properties"], "headers": {**(headers["properties"].get("headers") or {}), **added}
        }
    headers["redelivered"] = 1 if message.describe()["redelivered"] else 0
    _publish(vhost, f"deliver.{queue_name}", exchange, headers, message)


def _headers(vhost, client, message, keys):
    try:
        properties = Properties.decode(message.get_properties()).as_dict()
    except Malformed:  # no door accepts such properties
        properties = {}
    return {
        "exchange_name": to_text(message.get_exchange()), "routing_keys": list(keys),
        "properties": properties, "node": node_name(), "vhost": vhost.name,
        "connection": client.connection, "channel": client.channel, "user": client.user,
    }


def _publish(vhost, key, exchange, headers, message):
    trace = vhost.exchanges.get(TRACE)
    if trace is None or exchange == TRACE:
        return
    octets = to_octets(key)[:255]
    destinations = vhost.route(trace, to_text(octets), headers)
    trace.state.publish_in += 1
    trace.state.publish_out += len(destinations)
    if destinations:
        copy = Message()
        copy.assign(
            TRACE.encode(), octets, told_in_headers(Properties(headers=headers)), message.get_body(),
            message.describe()["timestamp_ms"],
        )
        for destination in destinations:
            destination.publish(copy)
