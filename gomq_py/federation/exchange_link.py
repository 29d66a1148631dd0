"""Exchange links: what is published to an exchange upstream comes to one of the same bindings here, too.

Upstream stand, for each link, a queue and an exchange of its own between the upstream's exchange and that
queue: the bindings of the exchange here are made between the two exchanges there, so that only what is asked
for here is sent. The exchange in between also leaves out what has been here already; where the broker
upstream does not know its type it is a fanout exchange, and this end leaves that out.

Bindings cannot be listed over AMQP. So each connect makes an exchange in between under the other one of two
names, with all bindings, and deletes the one before: none of an earlier run stays, and nothing is missed
meanwhile.
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
from gomq_py.client.errors import ChannelClosed, ConnectionClosed
from gomq_py.content.fields import Int64
from gomq_py.digests import sha256
from gomq_py.federation.bindings import Bindings, arguments_upstream
from gomq_py.federation.errands import Errands
from gomq_py.federation.link import NOT_FOUND, FederationLink, call_all, with_received, without_login
from gomq_py.federation.parameters import PURPOSE
from gomq_py.links import uris
from gomq_py.observability.log import logger

LOG = logger("federation")
SUFFIXES = (" A", " B")
# What the broker upstream says where it does not know a type of exchange.
COMMAND_INVALID = 503
PRECONDITION_FAILED = 406
# What is around the payload of a frame.
FRAME_OCTETS = 8
# How long a link waits until what an earlier one has made upstream is gone.
REMOVING_S = 10


class ExchangeLink(FederationLink):
    """One for each exchange and upstream."""

    type = "exchange"

    def __init__(self, ways, vhost, name, upstream):
        self.exchange = vhost.exchanges[name]
        # name of the broker upstream, and its vhost, once it is known
        self._there: tuple[str | None, str] = (None, "/")
        self._between = ""  # the exchange in between, once it is there
        self._is_plain = False  # upstream knows no such type as ours
        self._has_made = False  # something upstream
        self._is_over = False
        self._told_notes = set()
        super().__init__(ways, vhost, name, upstream)
        self._errands = Errands(ways.hub, self._connect_upstream, self._cannot_mirror)
        self._bindings = Bindings(self.exchange, self._bindings_changed)

    # for the supervisor

    def stop(self):
        self._errands.stop()
        self._is_over = True
        super().stop()

    def clean_up(self):
        if self.upstream.cleans_up:
            if not self._has_made:  # but an earlier run may have
                try:
                    self._there = None, uris.parse(self._uri or self.upstream.uris[0]).path or "/"
                except uris.URIError:  # nobody could ever connect to it
                    return
            done = self._ways.removing[self._place_upstream()] = Event()
            Errands(self._ways.hub, self._connect_upstream, partial(self._cannot_remove, done)).run(
                partial(self._remove_upstream, done))

    def _let_go(self):
        super()._let_go()
        if self._link is None:
            self._errands = self._bindings = None

    def binding_made(self, binding):
        """One more binding of the exchange, or of the one that it hands on to."""
        self._bindings.made(binding)

    def binding_gone(self, binding):
        """One less."""
        self._bindings.gone(binding)

    @property
    def queue_upstream(self):
        """The name of the queue upstream, and what those of the exchanges begin with: RabbitMQ's, which says
        of the vhost and exchange here only what is otherwise there.
        """
        there, here = self.upstream.exchange, [self._ways.cluster_name()]
        if self.vhost.name != self._there[1]:
            here += [self.vhost.name, self.name]
        elif self.name != there:
            here.append(self.name)
        return _fitting(f"federation: {there} -> {':'.join(here)}", NAME_OCTETS_MAX - len(SUFFIXES[0]))

    # what the link asks

    def _source(self):
        # exclusive: two brokers of one name would share the messages of one
        return self._make_source(self._prepare, exclusive=True)

    def _target(self):
        return self._make_target(self.name, None, self._edit, self._stamp)

    def _stamp(self):
        """What _edit() writes on a message that comes from the upstream itself."""
        return RECEIVED_FROM, *([self._told(redelivered)] for redelivered in (False, True))

    def _told(self, redelivered):
        told = {**self._received_from(), "redelivered": redelivered}
        if self._there[0] is not None:
            told[CLUSTER_NAME] = self._there[0]
        told[VHOST] = self._there[1]
        return told

    def _edit(self, properties, delivery):
        headers, name = properties.headers, self._ways.cluster_name()
        if not should_forward(headers, self.upstream.max_hops, name, self.vhost.name):
            return None
        passed = headers.get(RECEIVED_FROM) if headers else None
        return with_received(
            properties, self._told(bool(delivery.redelivered)), passed if isinstance(passed, list) else [],
            self.upstream.trust_user_id)

    # upstream; all of it may switch, and raises what the client raises

    def _prepare(self, channel):
        """Declare and bind what the link needs; returns the queue's name."""
        connection = channel.connection
        self._there = there_of(connection)
        self._check_other()
        exists, self._between, self.notes = [], "", []
        self._ensure_exchange(connection)
        queue = self.queue_upstream
        removing = self._ways.removing.get(self._place_upstream())
        if removing is not None:  # an earlier link's, which has just ended
            removing.wait(REMOVING_S)
        self._has_made = True
        self._declare_queue(connection, queue)
        for suffix in SUFFIXES:
            if _is_there(connection, queue + suffix):
                exists.append(queue + suffix)
        if len(exists) == len(SUFFIXES):  # the last attempt did not get as far as deleting one
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
        """Refuse an upstream that is this exchange itself, or that cannot be told from it: each message would
        come back. Raises ClientError.
        """
        here = self._ways.cluster_name(), self.vhost.name
        if self._there == here and self.upstream.exchange == self.name:
            raise ConnectionClosed(0, (
                f"the broker there is called '{here[0]}', as this one is: where they are two, give each a "
                "name of its own (PUT /api/cluster-name)"))

    def _ensure_exchange(self, connection):
        """The exchange upstream, as it is here where it is not there yet."""
        is_there, here = _is_there(connection, self.upstream.exchange), self.exchange
        channel = connection.channel()
        try:
            channel.exchange_declare(
                self.upstream.exchange, here.type, durable=here.durable, auto_delete=here.auto_delete,
                internal=here.internal, arguments=here.arguments)
        except ChannelClosed as error:
            if not is_there:
                raise
            # Nothing is wrong with an exchange that is durable only there; other types take bindings to mean
            # something else, which RabbitMQ leaves to whoever federates.
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
            # What comes while there is none would be lost: so it is not made anew.
            self._add_note(
                f"source: queue '{queue}' stays as it was declared for an earlier definition: {error}; it "
                "is made anew when the upstream is deleted and set again")
        else:
            channel.close()

    def _add_note(self, note):
        """What is otherwise upstream than defined, and does not keep messages from being moved."""
        self.notes.append(note)
        if note not in self._told_notes:
            self._told_notes.add(note)
            LOG.warning("federation link %s: %s", self.title, note)

    def _make_between(self, channel, name, queue):
        """The exchange in between, with all bindings."""
        if not self.upstream.max_hops:  # RabbitMQ's link fails and begins anew, without an end
            self._add_note("max-hops is 0: no message of this exchange goes over the link")
        arguments: dict[str, Any] = {PURPOSE: "federation"}
        kind = FanoutExchange.type
        if not self._is_plain:
            kind = FederationUpstreamExchange.type
            arguments.update({
                MAX_HOPS: Int64(self.upstream.max_hops), DOWNSTREAM_NAME: self._ways.cluster_name(),
                DOWNSTREAM_VHOST: self.vhost.name,
            })
        try:
            channel.exchange_declare(
                name, kind, durable=True, auto_delete=True, internal=True, arguments=arguments)
        except ConnectionClosed as error:
            # the next attempt does without
            self._is_plain = self._is_plain or error.reply_code == COMMAND_INVALID
            raise
        channel.queue_bind(queue, name)
        bindings = self._bindings.begin()
        self._carry_out(channel, name, [(*binding, True) for binding in bindings])

    def _carry_out(self, channel, between, changes):
        """Make and remove bindings."""
        here = (
            self._ways.cluster_name(), self.vhost.name, f"{self.vhost.name}:{self.name}{between[-2:]}")
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
            channel.exchange_declare(between, passive=True)  # here it says what has failed

    def _fits(self, connection, method):
        """Whether the broker upstream takes a method of this size. One binding must not end all the others.
        """
        fits = not connection.frame_max or len(method.encode()) + FRAME_OCTETS <= connection.frame_max
        if not fits:
            self._add_note(
                f"source: a binding with key '{method.routing_key[:100]}' is not made, for its arguments do "
                "not fit into a frame")
        return fits

    # what changes while it runs

    def _bindings_changed(self):
        if self._between and self._bindings.has_changes:
            self._errands.run(self._mirror)

    def _mirror(self, channel):
        while self._between and self._bindings.has_changes:
            self._carry_out(channel, self._between, self._bindings.take_changes())

    def _cannot_mirror(self, error):
        """A connect makes all bindings anew."""
        LOG.warning("bindings of the federation link %s cannot be changed, it connects anew: %s", self.title,
                    error)
        self._between = ""
        if not self._is_over:
            self.restart()

    # its end

    def _place_upstream(self):
        """What is the same only for links that make the same upstream."""
        return without_login(self._uri), self.queue_upstream

    def _remove_upstream(self, done, channel):
        self._there = there_of(channel.connection)
        self._check_other()
        queue = self.queue_upstream
        if not self._has_made:  # whoever consumes from it is another broker, of the same name as this one
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
        for place, event in list(self._ways.removing.items()):
            if event is done:
                del self._ways.removing[place]


def there_of(connection):
    """(name of the broker upstream or None, its vhost)."""
    name = connection.server_properties.get("cluster_name")
    return name if isinstance(name, str) else None, connection.parameters.virtual_host


def _is_there(connection, exchange):
    """Whether there is such an exchange upstream."""
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
    """The name, or its beginning and a digest of all of it where it has too many octets."""
    octets = name.encode("utf-8", "surrogateescape")
    if len(octets) <= most:
        return name
    digest = sha256(octets).hexdigest()[:32]
    return f"{octets[:most - 33].decode('utf-8', 'ignore')} {digest}"
