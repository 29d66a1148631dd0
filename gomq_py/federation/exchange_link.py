"""Exchange links: bring messages of an exchange upstream to an exchange here, whose bindings route them.

Each link has a queue upstream, and an intermediate exchange of its own between the upstream's exchange and
that queue. The link binds the intermediate exchange to the upstream's exchange once for each binding of the
local exchange, so that only wanted messages are sent. The type of the intermediate exchange also drops
messages that have already passed this broker. If the broker upstream does not know this type, a fanout
exchange takes its place, and the link drops these messages.

AMQP cannot list bindings. So each connect makes a new intermediate exchange with all bindings, then deletes
the previous one; two names alternate. No binding of an earlier run stays, and no message is missed.
"""
from functools import partial
from typing import Any

from gevent.event import Event

from gomq_py.amqp.wire.methods import ExchangeBind, ExchangeBindOk, ExchangeUnbind, ExchangeUnbindOk
from gomq_py.broker.exchanges.fanout import FanoutExchange
from gomq_py.broker.exchanges.federation_upstream import (
    CLUSTER_NAME, DOWNSTREAM_NAME, DOWNSTREAM_VHOST, MAX_HOPS, RECEIVED_FROM, VHOST,
    FederationUpstreamExchange, should_forward,
)
from gomq_py.broker.features.arguments import QUEUE_TYPE
from gomq_py.broker.features.expiry import EXPIRES, MESSAGE_TTL
from gomq_py.broker.names import NAME_OCTETS_MAX
from gomq_py.client.errors import ChannelClosed, ClientError, ConnectionClosed
from gomq_py.content.fields import Int64
from gomq_py.digests import sha256
from gomq_py.federation.bindings import Bindings, arguments_upstream
from gomq_py.federation.link import NOT_FOUND, FederationLink, call_all, with_received
from gomq_py.federation.parameters import PURPOSE
from gomq_py.links import uris
from gomq_py.observability.log import logger

LOG = logger("federation")
SUFFIXES = (" A", " B")
COMMAND_INVALID = 503
PRECONDITION_FAILED = 406
# Header and end of a frame.
FRAME_OCTETS = 8
# Longest wait for the cleanup upstream of an earlier link.
REMOVING_S = 10
# Seconds for which the connection of UpstreamTasks is kept for the next task.
LINGER_S = 5.0


class ExchangeLink(FederationLink):
    """A federation link that moves messages from an exchange upstream to an exchange here."""

    type = "exchange"

    def __init__(self, context, vhost, name, upstream):
        self.exchange = vhost.exchanges[name]
        # (name of the broker upstream, its vhost), once known
        self._there: tuple[str | None, str] = (None, "/")
        self._between = ""  # name of the exchange in between, once made
        self._is_plain = False  # the broker upstream does not know our exchange type
        self._has_made = False  # an object was made upstream
        self._is_over = False
        self._told_notes = set()
        super().__init__(context, vhost, name, upstream)
        self._tasks = UpstreamTasks(context.hub, self._connect_upstream, self._cannot_mirror)
        self._bindings = Bindings(self.exchange, self._bindings_changed)

    # called by the supervisor

    def stop(self):
        self._tasks.stop()
        self._is_over = True
        super().stop()

    def clean_up(self):
        if self.upstream.cleans_up:
            if not self._has_made:  # an earlier run may have made objects
                try:
                    self._there = None, uris.parse(self._uri or self.upstream.uris[0]).path or "/"
                except uris.URIError:  # no earlier run could connect either
                    return
            done = self._context.removing[self._place_upstream()] = Event()
            UpstreamTasks(self._context.hub, self._connect_upstream, partial(self._cannot_remove, done)).run(
                partial(self._remove_upstream, done))

    def _let_go(self):
        super()._let_go()
        if self._link is None:
            self._tasks = self._bindings = None

    def binding_made(self, binding):
        self._bindings.made(binding)

    def binding_gone(self, binding):
        self._bindings.gone(binding)

    @property
    def queue_upstream(self):
        """Name of the link's queue upstream, formed as in RabbitMQ."""
        # Contains vhost and exchange of this broker only if they differ from those upstream.
        there, here = self.upstream.exchange, [self._context.cluster_name()]
        if self.vhost.name != self._there[1]:
            here += [self.vhost.name, self.name]
        elif self.name != there:
            here.append(self.name)
        return _fitting(f"federation: {there} -> {':'.join(here)}", NAME_OCTETS_MAX - len(SUFFIXES[0]))

    # called by the link

    def _source(self):
        # exclusive: two brokers of the same name would share one queue's messages
        return self._make_source(self._prepare, exclusive=True)

    def _target(self):
        return self._make_target(self.name, None, self._edit, self._header_stamp)

    def _header_stamp(self):
        """Return (name, value, value if redelivered) of x-received-from, for messages without that header."""
        return RECEIVED_FROM, *([self._told(redelivered)] for redelivered in (False, True))

    def _told(self, redelivered):
        told = {**self._received_from(), "redelivered": redelivered}
        if self._there[0] is not None:
            told[CLUSTER_NAME] = self._there[0]
        told[VHOST] = self._there[1]
        return told

    def _edit(self, properties, delivery):
        headers, name = properties.headers, self._context.cluster_name()
        if not should_forward(headers, self.upstream.max_hops, name, self.vhost.name):
            return None
        passed = headers.get(RECEIVED_FROM) if headers else None
        return with_received(
            properties, self._told(bool(delivery.redelivered)), passed if isinstance(passed, list) else [],
            self.upstream.trust_user_id)

    # upstream; all of these may switch, and raise the client's errors

    def _prepare(self, channel):
        """Set up the link's queue and exchanges upstream. Returns the queue's name. May switch greenlets."""
        connection = channel.connection
        self._there = there_of(connection)
        self._check_other()
        exists, self._between, self.notes = [], "", []
        self._ensure_exchange(connection)
        queue = self.queue_upstream
        removing = self._context.removing.get(self._place_upstream())
        if removing is not None:  # cleanup of an earlier link that has just ended
            removing.wait(REMOVING_S)
        self._has_made = True
        self._declare_queue(connection, queue)
        for suffix in SUFFIXES:
            if _is_there(connection, queue + suffix):
                exists.append(queue + suffix)
        if len(exists) == len(SUFFIXES):  # the last attempt deleted neither
            self._make_between(channel, exists[1], queue)
            channel.exchange_delete(exists[0])
            del exists[0]
        between = queue + SUFFIXES[exists == [queue + SUFFIXES[0]]]
        self._make_between(channel, between, queue)
        for name in exists:
            channel.exchange_delete(name)
        self._between = between
        self._bindings_changed()
        return queue

    def _check_other(self):
        """Raise ClientError if the exchange upstream seems to be the local one: messages would loop."""
        # Messages would loop.
        here = self._context.cluster_name(), self.vhost.name
        if self._there == here and self.upstream.exchange == self.name:
            raise ConnectionClosed(0, (
                f"the broker there is called '{here[0]}', as this one is: where they are two, give each a "
                "name of its own (PUT /api/cluster-name)"))

    def _ensure_exchange(self, connection):
        """Declare the exchange upstream if it is missing, with the type and properties of the local exchange.
        If the exchange exists with another type, adds a note. May switch greenlets.
        """
        is_there, here = _is_there(connection, self.upstream.exchange), self.exchange
        channel = connection.channel()
        try:
            channel.exchange_declare(
                self.upstream.exchange, here.type, durable=here.durable, auto_delete=here.auto_delete,
                internal=here.internal, arguments=here.arguments)
        except ChannelClosed as error:
            if not is_there:
                raise
            # Only a difference in type matters: another type reads bindings differently, which RabbitMQ
            # leaves to the operator. An exchange may well be durable only upstream.
            if "'type'" in error.reply_text:
                self._add_note(f"source: {error}")
        else:
            channel.close()

    def _declare_queue(self, connection, queue):
        upstream = self.upstream
        arguments: dict[str, Any] = {PURPOSE: "federation"}
        for key, value in ((EXPIRES, upstream.expires_ms), (MESSAGE_TTL, upstream.message_ttl_ms)):
            if value is not None:
                arguments[key] = Int64(value)
        if upstream.queue_type is not None:
            arguments[QUEUE_TYPE] = upstream.queue_type
        channel = connection.channel()
        try:
            channel.queue_declare(queue, durable=True, arguments=arguments)
        except ChannelClosed as error:
            if error.reply_code != PRECONDITION_FAILED:
                raise
            # Deleting and remaking the queue would lose messages published meanwhile.
            self._add_note(
                f"source: queue '{queue}' stays as it was declared for an earlier definition: {error}; it "
                "is made anew when the upstream is deleted and set again")
        else:
            channel.close()

    def _add_note(self, note):
        """Add to the status why messages may be missing; log it if it was not logged before."""
        self.notes.append(note)
        if note not in self._told_notes:
            self._told_notes.add(note)
            LOG.warning("federation link %s: %s", self.title, note)

    def _make_between(self, channel, name, queue):
        """Declare the intermediate exchange upstream, make all bindings, and bind the link's queue to it."""
        if not self.upstream.max_hops:  # RabbitMQ's link fails and restarts for ever
            self._add_note("max-hops is 0: no message of this exchange goes over the link")
        arguments: dict[str, Any] = {PURPOSE: "federation"}
        kind = FanoutExchange.type
        if not self._is_plain:
            kind = FederationUpstreamExchange.type
            arguments.update({
                MAX_HOPS: Int64(self.upstream.max_hops), DOWNSTREAM_NAME: self._context.cluster_name(),
                DOWNSTREAM_VHOST: self.vhost.name,
            })
        try:
            channel.exchange_declare(
                name, kind, durable=True, auto_delete=True, internal=True, arguments=arguments)
        except (ChannelClosed, ConnectionClosed) as error:
            # the next attempt makes a fanout exchange
            self._is_plain = self._is_plain or lacks_type(error)
            raise
        channel.queue_bind(queue, name)
        bindings = self._bindings.begin()
        self._carry_out(channel, name, [(*binding, True) for binding in bindings])

    def _carry_out(self, channel, between, changes):
        """Change bindings of the exchange ``between`` upstream. ``changes``: see Bindings.take_changes."""
        here = (
            self._context.cluster_name(), self.vhost.name, f"{self.vhost.name}:{self.name}{between[-2:]}")
        for is_made, method, answer in (
            (False, ExchangeUnbind, ExchangeUnbindOk), (True, ExchangeBind, ExchangeBindOk)
        ):
            tables = [
                (key, arguments_upstream(arguments, here, self._there, self.upstream.max_hops))
                for key, arguments, made in changes if made is is_made]
            methods = [
                method(destination=between, source=self.upstream.exchange, routing_key=key, arguments=table,
                       no_wait=self.upstream.bind_nowait)
                for key, table in tables if table is not None]
            methods = [one for one in methods if self._fits(channel.connection, one)]
            call_all(channel, methods, None if self.upstream.bind_nowait else answer)
        if self.upstream.bind_nowait:
            channel.exchange_declare(between, passive=True)  # errors of earlier methods arrive here

    def _fits(self, connection, method):
        """True if the method fits into an upstream broker's frame. If not, adds a note to the status."""
        # One large binding would end the connection.
        fits = not connection.frame_max or len(method.encode()) + FRAME_OCTETS <= connection.frame_max
        if not fits:
            self._add_note(
                f"source: a binding with key '{method.routing_key[:100]}' is not made, for its arguments do "
                "not fit into a frame")
        return fits

    # changes while the link runs

    def _bindings_changed(self):
        if self._between and self._bindings.has_changes:
            self._tasks.run(self._mirror)

    def _mirror(self, channel):
        while self._between and self._bindings.has_changes:
            self._carry_out(channel, self._between, self._bindings.take_changes())

    def _cannot_mirror(self, error):
        """Restart the link, as a change of a binding upstream failed. A new connection makes all bindings."""
        LOG.warning("bindings of the federation link %s cannot be changed, it connects anew: %s", self.title,
                    error)
        self._between = ""
        if not self._is_over:
            self.restart()

    # its end

    def _place_upstream(self):
        """Return (URI without login, queue name), which identifies the link's objects upstream."""
        return uris.without_login(self._uri), self.queue_upstream

    def _remove_upstream(self, done, channel):
        self._there = there_of(channel.connection)
        self._check_other()
        queue = self.queue_upstream
        if not self._has_made:  # another broker of the same name consumes
            channel.queue_delete(queue, if_unused=True)
        for suffix in SUFFIXES:
            channel.exchange_delete(queue + suffix)
        channel.queue_delete(queue)
        self._removed(done)

    def _cannot_remove(self, done, error):
        LOG.warning("queue %r stays upstream, if it is there, after the end of the federation link %s: %s",
                    self.queue_upstream, self.title, error)
        self._removed(done)

    def _removed(self, done):
        done.set()
        for place, event in list(self._context.removing.items()):
            if event is done:
                del self._context.removing[place]


class UpstreamTasks:
    """Runs tasks of one link upstream, such as changes of bindings, over a separate connection.

    The connection is closed LINGER_S after the last task. ``connect()`` returns a client's Connection.
    ``failed(error)``, which must not switch greenlets, is called if the upstream cannot be reached or refuses
    a task. All waiting tasks are then dropped.
    """

    # Bindings change in bursts, and a thousand idle links should not hold a second connection each.
    def __init__(self, hub, connect, failed):
        self._hub = hub
        self._connect = connect
        self._failed = failed
        self._waiting = {}  # functions, as keys, in order
        self._more = Event()
        self._greenlet = None
        self._is_stopped = False

    def run(self, do):
        """Call ``do(channel)`` soon, in another greenlet. No effect if the same ``do`` is still waiting."""
        if self._is_stopped:
            return
        self._waiting[do] = None
        self._more.set()
        if self._greenlet is None:
            self._greenlet = self._hub.spawn(self._run)
            self._greenlet.name = "federation errands"

    def stop(self):
        """Drop waiting tasks. A running task is completed, and its failure is not reported."""
        self._is_stopped = True
        self._waiting.clear()
        self._more.set()

    def _run(self):
        try:
            while self._waiting:
                with self._connect() as connection:
                    self._serve(connection.channel())
        except (ClientError, OSError, ValueError) as error:
            self._end(error)
        except Exception as error:
            LOG.exception("federation errands: a fault of ours")
            self._end(error)
        finally:
            self._greenlet = None

    def _end(self, error):
        self._greenlet = None
        self._waiting.clear()
        if not self._is_stopped:
            self._failed(error)

    def _serve(self, channel):
        while self._waiting:
            self._more.clear()
            do = next(iter(self._waiting))
            del self._waiting[do]
            do(channel)
            if not self._waiting and not self._is_stopped:
                self._more.wait(LINGER_S)


def lacks_type(error):
    """True if a broker has refused to declare an exchange because it does not know the type. The reply code
    is 503 or, from RabbitMQ 4.3 on, 406, which has other causes, too.
    """
    return error.reply_code == COMMAND_INVALID or (
        error.reply_code == PRECONDITION_FAILED and " exchange type '" in error.reply_text)


def there_of(connection):
    """Return (name of the broker or None, vhost) at the other side of a client's Connection."""
    name = connection.server_properties.get("cluster_name")
    return name if isinstance(name, str) else None, connection.parameters.virtual_host


def _is_there(connection, exchange):
    channel = connection.channel()
    try:
        channel.exchange_declare(exchange, passive=True)
    except ChannelClosed as error:
        if error.reply_code != NOT_FOUND:
            raise
        return False
    channel.close()
    return True


def _fitting(name, most):
    """Return ``name``, or its beginning and a digest if it exceeds ``most`` bytes."""
    octets = name.encode("utf-8", "surrogateescape")
    if len(octets) <= most:
        return name
    digest = sha256(octets).hexdigest()[:32]
    return f"{octets[:most - 33].decode('utf-8', 'ignore')} {digest}"
