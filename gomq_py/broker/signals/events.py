"""Event exchange: publishes the broker's events to ``amq.rabbitmq.event`` in the default vhost, if enabled.

The exchange, routing keys (``queue.created``...) and header names are RabbitMQ's; the body is empty. Code
that reports an event calls ``emit`` with a function that makes the headers. ``emit`` calls the function only
if the exchange has bindings, so an unwanted event costs almost nothing. Events are published after the next
poll of the event loop, when the change that they report is complete.
"""
import socket
from collections import deque
from contextvars import ContextVar
from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

from gomq_py.broker.tables import WIRE_DEPTH
from gomq_py.content.properties import Properties, PropertyScan
from gomq_py.hub.scheduler import Job, unix_ms
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.observability.secrets import shown
from gomq_py.storage.message import Message

LOG = logger("broker")
QUIET = QuietLog(LOG)
NAME = "amq.rabbitmq.event"

# RabbitMQ's name for actions without a user: expiry, auto-delete, the end of a connection.
INTERNAL_USER = "rmq-internal"

# Events published before others get their turn: some 5 ms.
SLICE = 200
# Most waiting events; beyond it the oldest are dropped, and the log tells the count.
WAITING_EVENTS = 100_000

PERSISTENT = 2

# Replaces tables and arrays that are nested too deep for the wire, in the broker's own messages.
CUT = "(nested too deep to be shown)"


class Actor(NamedTuple):
    """The user who acts, the protocol of the request, and the client's address ("" if there is none). A
    ClientConnection has the same attributes, and is used instead of an Actor.
    """

    user: Any
    protocol: str = ""
    peer: str = ""


INTERNAL = Actor(SimpleNamespace(name=INTERNAL_USER))
# Each greenlet has its own value, so that a request which waits is not taken for what others do meanwhile.
ACTOR: ContextVar = ContextVar("gomq_py.actor", default=INTERNAL)


class Events(Job):
    """Publisher of the events of one broker. ``actor``: who acts now in this greenlet, an Actor or a
    ClientConnection. No event is published before ``start``, because entities loaded at boot are not new.
    """

    name = "events"

    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        self._vhosts = None
        self._waiting = deque()
        self._left_out = 0
        self._listeners = []
        self._note_keys()

    @property
    def actor(self):
        return ACTOR.get()

    def subscribe(self, listener, keys=None):
        """Have ``listener(key, subjects)`` called at each event or, with ``keys``, only at events with one of
        these routing keys. Listeners are called even without an event exchange. They must not switch
        greenlets.
        """
        self._listeners.append((listener, keys))
        self._note_keys()

    def unsubscribe(self, listener):
        self._listeners = [one for one in self._listeners if one[0] != listener]
        self._note_keys()

    def _note_keys(self):
        self._hears_all = any(keys is None for _, keys in self._listeners)
        self._heard = frozenset(chain.from_iterable(keys or () for _, keys in self._listeners))

    def start(self, vhosts):
        """Begin to publish events to the event exchange in ``vhosts["/"]``, if it exists."""
        self._vhosts = vhosts

    def stop(self):
        """Stop publishing, and drop the events not yet published."""
        self._vhosts = None
        self._waiting.clear()

    def on_behalf_of(self, actor, do, *arguments):
        """Call ``do(*arguments)`` and return its result. Events emitted during the call name ``actor``."""
        before = ACTOR.set(actor)
        try:
            return do(*arguments)
        finally:
            ACTOR.reset(before)

    def emit_for(self, actor, key, headers_of, *subjects):
        """Emit an event as caused by ``actor``. Other arguments as for emit()."""
        if self.is_heard(key):
            self.on_behalf_of(actor, self.emit, key, headers_of, *subjects)

    def is_heard(self, key):
        """Return True if a listener is called for this routing key, or the event exchange has a binding."""
        return self._hears_all or key in self._heard or self._is_bound()

    def emit(self, key, headers_of, *subjects):
        """Report an event with the routing key ``key``. Listeners get the ``subjects``, a tuple.
        ``headers_of(*subjects)`` returns the event's headers, a dict of field values. It is called only if
        the event exchange has a binding.
        """
        # In the headers passwords are hidden (in arguments, client properties and the like), because users
        # who may bind to the exchange need not know them.
        for listener, keys in self._listeners:
            if keys is not None and key not in keys:
                continue
            try:
                listener(key, subjects)
            except Exception as error:  # as below
                QUIET.error(key, "event %s cannot be told", key, exc_info=error)
        if not self._is_bound():
            return
        try:
            headers = shown(headers_of(*subjects))
        except Exception as error:  # the action itself has succeeded
            QUIET.error(key, "event %s cannot be told", key, exc_info=error)
            return
        headers["user_who_performed_action"] = self.actor.user.name
        # not the batch's time, which is that of the last publish
        headers["timestamp_in_ms"] = unix_ms()
        headers["node"] = node_name()
        if len(self._waiting) >= WAITING_EVENTS:
            self._waiting.popleft()
            self._left_out += 1
        self._waiting.append((key, headers))
        self._scheduler.start(self)

    def _is_bound(self):
        # three times per login, so without a call of _exchange()
        vhost = self._vhosts.get("/") if self._vhosts is not None else None
        exchange = None if vhost is None else vhost.exchanges.get(NAME)
        return exchange is not None and exchange.binding_count > 0

    def _exchange(self):
        vhost = self._vhosts.get("/") if self._vhosts is not None else None
        return None if vhost is None else vhost.exchanges.get(NAME)

    def step(self):
        exchange = self._exchange()
        if self._left_out:
            LOG.warning(
                "%d events were left out: they came faster than they could be published", self._left_out
            )
            self._left_out = 0
        for _ in range(min(SLICE, len(self._waiting))):
            key, headers = self._waiting.popleft()
            try:
                if exchange is not None:
                    self._publish(exchange, key, headers)
            except Exception as error:
                # a parameter with a number too large for a field, or a bug
                QUIET.error(key, "event %s cannot be told: %s: %s", key, type(error).__name__, error)
        return bool(self._waiting)

    def failed(self, error):
        return bool(self._waiting)

    def _publish(self, exchange, key, headers):
        now_ms = self._scheduler.now_ms
        destinations = self._vhosts["/"].route(exchange, key, headers)
        exchange.state.publish_in += 1
        exchange.state.publish_out += len(destinations)
        if destinations:
            properties = Properties(
                headers=headers, delivery_mode=PERSISTENT, timestamp=headers["timestamp_in_ms"] // 1000
            )
            message = Message()
            message.assign(
                NAME.encode(), key.encode(), told_in_headers(properties), b"", now_ms, persistent=True
            )
            for destination in destinations:
                destination.publish(message)


def node_name():
    """Return the node's name in RabbitMQ's form: gomq@HOST."""
    return f"gomq@{socket.gethostname()}"


def told_in_headers(properties):
    """Return the encoded Properties of a message of the broker itself. Tables and arrays nested too deep for
    clients are replaced by CUT. Raises ValueError or TypeError for a value that a table cannot hold.
    """
    raw = properties.encode()
    if not PropertyScan().scan_octets(raw):
        properties.headers = _cut(properties.headers, WIRE_DEPTH)
        raw = properties.encode()
    return raw


def _cut(value, levels):
    """Return ``value`` with the text CUT for tables and arrays nested more than ``levels`` deep."""
    if not isinstance(value, (dict, list, tuple)):
        return value
    if levels < 0:
        return CUT
    if isinstance(value, dict):
        return {key: _cut(inner, levels - 1) for key, inner in value.items()}
    return [_cut(inner, levels - 1) for inner in value]


# headers of the broker's own events; doors have their own

def exchange_created(exchange):
    return {
        "name": exchange.name, "vhost": exchange.vhost, "type": exchange.type, "durable": exchange.durable,
        "auto_delete": exchange.auto_delete, "internal": exchange.internal, "arguments": exchange.arguments,
    }


def queue_created(queue):
    return {
        "name": queue.name, "vhost": queue.vhost, "durable": bool(queue.durable),
        "auto_delete": bool(queue.auto_delete),
        "exclusive": queue.exclusive_owner is not None, "arguments": queue.arguments,
        "owner_pid": getattr(queue.exclusive_owner, "name", ""),
    }


def entity_deleted(entity):
    """Return the headers of ``queue.deleted`` and ``exchange.deleted``."""
    return {"name": entity.name, "vhost": entity.vhost}


def binding_made(binding):
    """Return the headers of ``binding.created`` and ``binding.deleted``."""
    return {
        "source_name": binding.source.name, "source_kind": "exchange",
        "destination_name": binding.destination.name,
        "destination_kind": binding.destination_type, "routing_key": binding.routing_key,
        "arguments": binding.arguments, "vhost": binding.source.vhost,
    }


def vhost_created(vhost):
    return {"name": vhost.name, "description": vhost.description, "tags": list(vhost.tags)}


def vhost_updated(vhost):
    return {
        **vhost_created(vhost), "default_queue_type": vhost.default_queue_type,
        "protected_from_deletion": vhost.protected_from_deletion, "tracing": vhost.tracing}


def vhost_deleted(vhost, queues, exchanges):
    return {"name": vhost.name}


# headers of events about logins and connections of any door; ``protocol`` is the door's name

def connection_created(connection, protocol):
    """Return the headers of ``connection.created``, which is emitted when the client has opened a vhost."""
    limits = connection.limits
    return {
        "name": connection.name, "pid": connection.name,
        **_ends(connection.socket, connection.peer_host, connection.peer_port),
        "ssl": hasattr(connection.socket, "cipher"),
        "protocol": protocol, "type": "network", "user": connection.user.name,
        "vhost": connection.vhost.name, "timeout": limits.heartbeat_s,
        "frame_max": limits.frame_max, "channel_max": limits.channel_max,
        "client_properties": connection.client_properties,
    }


def connection_closed(connection):
    """Return the headers of ``connection.closed``."""
    return {
        "name": connection.name, "pid": connection.name, "client_properties": connection.client_properties,
        "vhost": connection.vhost.name, "user": connection.user.name,
    }


def logged_in(name, username, socket, peer, protocol, error=""):
    """Return the headers of ``user.authentication.success``, or of ``user.authentication.failure`` if there
    is an ``error``. ``name``: the connection's name; ``peer``: the client's (host, port).
    """
    headers = {
        "name": username, "connection_name": name, "connection_type": "network", "protocol": protocol,
        **_ends(socket, *peer),
    }
    if error:
        headers["error"] = error
    return headers


def _ends(socket, peer_host, peer_port):
    try:
        address = socket.getsockname()
    except OSError:  # the socket is closed
        address = ""
    host, port = (address[0], address[1]) if isinstance(address, tuple) else ("", 0)
    return {"host": host, "port": port, "peer_host": peer_host, "peer_port": peer_port}
