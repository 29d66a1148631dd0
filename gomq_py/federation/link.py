"""Federation link: brings messages from one upstream to one exchange or queue of this broker.

Subclasses define which objects are declared upstream, when the link consumes, and which headers it adds. A
Link (links.link) moves the messages. The supervisor owns, starts and stops the federation link. If no link is
possible, a NoLink takes its place and shows operators the reason.
"""
import time

from gomq_py.broker.exchanges.federation_upstream import RECEIVED_FROM
from gomq_py.broker.features.federation import UPSTREAM
from gomq_py.broker.policies.parameters import FAULTY, WAITING
from gomq_py.broker.policies.policy import EXCHANGE
from gomq_py.client.backoff import Backoff
from gomq_py.digests import sha256
from gomq_py.links.ends import NO_ACK, SourceEnd, TargetEnd
from gomq_py.links.link import Link
from gomq_py.links.uris import without_login
from gomq_py.observability.secrets import without_passwords

# URI of this broker, for the local end; connecting adds the virtual host.
HERE = "amqp://"
# Longest back-off in seconds, unless the upstream's delay is longer.
MOST_DELAY_S = 30
# Longest error text shown: it may come from another broker.
ERROR_CHARACTERS = 500
# Methods whose answers are awaited together.
PIPELINED = 200
NOT_FOUND = 404


class FederationLink:
    """Moves messages from one upstream to an exchange or queue here.

    ``type``: "exchange" or "queue". ``name``: name of the exchange or queue here. ``id``: short hash of
    source and destination. ``context``: the LinkContext that all links of a broker share.
    """

    type = ""
    prefetch = 1000
    begins_paused = False

    def __init__(self, context, vhost, name, upstream):
        self.vhost = vhost
        self.name = name
        self.upstream = upstream
        self.id = id_of(self.type, vhost.name, name, upstream)
        self.changed_at_s = time.time()
        self.told_status = None
        self.notes = []  # differences from the definition that do not stop messages
        self.fault = None  # "end: reason" why no messages are moved, if known without a connection
        self._context = context
        self._is_administrators = False  # an administrator had set it at the start
        self._by = None  # the upstream's setter at the last connect
        self._uri = ""  # URI of the last connect
        self._is_gone = False
        self._link = (context.make_link or Link)(
            context.hub, f"federation link {self.title}", self._source(), self._target(),
            ack_mode=upstream.ack_mode,
            backoff=Backoff(upstream.reconnect_delay_s, max(upstream.reconnect_delay_s, MOST_DELAY_S)),
            refusals=upstream.refusal_limit, connect=self._connect_upstream,
            connect_target=self._connect, ends_with=frozenset(),
            on_change=self._changed, on_end=self._ended, paused=self.begins_paused,
            account=(vhost.set_by.get((UPSTREAM, upstream.name)), vhost.name),
        )

    def __repr__(self):
        return f"<FederationLink {self.title}: {self.state}>"

    @property
    def title(self):
        return title_of(self.type, self.vhost.name, self.name, self.upstream)

    # called by the supervisor

    def start(self):
        """Move messages until ``stop``. No effect while running."""
        if self._link.has_ended:
            self.restart()

    def stop(self):
        """Begin to stop: consume no more, settle messages in flight. Queues and exchanges upstream stay."""
        self._link.stop()

    @property
    def has_ended(self):
        """True if the Link has ended: it has no connection and is not connecting."""
        return self._link.has_ended

    def clean_up(self):
        """Remove what this link made upstream. Called after ``stop``. Does nothing unless overridden."""

    def gone(self):
        """Release the Link, now or when it ends. The last call to this object, after any ``clean_up``."""
        self._is_gone = True
        self._let_go()

    def _let_go(self):
        if self._is_gone and self._link is not None and self._link.has_ended:
            self._link = None

    def restart(self):
        """Reconnect, or stop with a ``fault`` if the link is not allowed (LinkContext.refusal)."""
        self.fault = self._refusal()
        self._is_administrators = self._context.is_administrators(self.vhost, self.upstream.name)
        if self.fault is None:
            self._link.restart()
        else:
            self._link.stop()
            self._changed(self._link)

    def rights_changed(self):
        """Restart the link, or stop it with a ``fault``, if its users' rights now require that."""
        is_less = self._is_administrators and not self._context.is_administrators(
            self.vhost, self.upstream.name)
        if is_less or self._refusal() != self.fault:
            self.restart()

    @property
    def state(self):
        """State of the Link, as text. "error" also while it waits after a failed attempt, as in RabbitMQ."""
        if self.fault is not None:
            return "error"
        status = self._link.status
        return "error" if status.state == "starting" and status.error else status.state

    def described(self):
        """Return a description for operators: a dict with RabbitMQ's keys where RabbitMQ has them."""
        status = self._link.status
        shown = {
            "node": self._context.node_name, self.type: self.name,
            f"upstream_{self.type}": getattr(self.upstream, self.type),
            "type": self.type, "vhost": self.vhost.name, "upstream": self.upstream.name, "id": self.id,
            "status": self.state, "uri": without_passwords(status.source_uri or self.upstream.uris[0]),
            "timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.changed_at_s)),
            "consumer_tag": self.upstream.consumer_tag, "ack_mode": self.upstream.ack_mode,
            "local_connection": f"federation link {self.title}",
            **{key: getattr(status, key) for key in (
                "moved", "unconfirmed", "refused", "set_aside", "reconnects", "rate")},
            "blocked": bool(status.blocked),
        }
        notes = [f"{key} has no effect" for key in self.upstream.ignored] + self.notes
        if notes:
            shown["note"] = without_passwords("; ".join(notes))[:ERROR_CHARACTERS]
        error = status.error if self.fault is None else self.fault
        if error:
            shown["error"] = without_passwords(error)[:ERROR_CHARACTERS]
        return shown

    # implemented by kinds

    def _source(self):
        raise NotImplementedError

    def _target(self):
        raise NotImplementedError

    def _received_from(self):
        """Return a dict: the fields of the link's x-received-from entry that are equal for all messages."""
        return {"uri": without_login(self._uri), self.type: getattr(self.upstream, self.type)}

    # for kinds

    def _refusal(self):
        """Return why the link is not allowed, as text; None if it is allowed."""
        return self._context.refusal(
            self.vhost, self.upstream, self.type, self.name, self._link.target.exchange)

    def _make_source(self, prepare, consumer_arguments=None, exclusive=False):
        upstream = self.upstream
        return SourceEnd(
            list(upstream.uris), prepare=prepare, prefetch=upstream.prefetch_count or self.prefetch,
            consumer_arguments=consumer_arguments, exclusive=exclusive, consumer_tag=upstream.consumer_tag,
            no_ack=upstream.ack_mode == NO_ACK,
        )

    def _make_target(self, exchange, routing_key, edit, header_stamp=None):
        return TargetEnd([HERE], exchange, routing_key, edit=edit, header_stamp=header_stamp)

    def _connect_upstream(self, uri=""):
        """Return a client's Connection to ``uri``, or, if ``uri`` is empty, to the URI used last. May switch
        greenlets. Raises ValueError, OSError, ClientError.
        """
        self._uri = uri or self._uri or self.upstream.uris[0]
        return self._connect(self._uri)

    def _connect(self, uri):
        self._by = self._context.set_by(self.vhost, self.upstream.name, self._by)
        return self._context.connect(
            uri, self.vhost, self.upstream.name, self._by, f"federation link {self.title}")

    # called by the link

    def _changed(self, _link):
        self.changed_at_s = time.time()
        self._context.on_change(self)
        self._let_go()

    def _ended(self, _link, reason):
        self.changed_at_s = time.time()
        self._context.on_end(self, reason)


def title_of(type_, vhost, name, upstream):
    return f"of {type_} '{name}' in vhost '{vhost}' from upstream '{upstream.name}'"


def id_of(type_, vhost, name, upstream):
    """Return a short id of a link (16 hex digits), equal for equal source and destination."""
    said = "\0".join((type_, vhost, name, upstream.name, upstream.exchange, upstream.queue))
    return sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def with_received(properties, told, passed, trusts_user_id):
    """Prepend an entry to the header x-received-from of the Properties, and return them.

    ``told``: the entry about the upstream. ``passed``: list of the entries so far, one for each broker that
    the message has passed. Removes the user id unless ``trusts_user_id``.
    """
    headers = properties.headers or {}
    properties.headers = {**headers, RECEIVED_FROM: [told, *passed]}
    if not trusts_user_id:
        properties.user_id = None
    return properties


def call_all(channel, methods, answer):
    """Send many methods, PIPELINED at a time, and wait for their answers. May switch greenlets. ``answer``:
    class of the answers, None to wait for none. Raises ClientError, OSError.
    """
    waiting = 0
    for method in methods:
        channel.send(method)
        waiting += 1
        if waiting == PIPELINED:
            _await_all(channel, waiting, answer)
            waiting = 0
    _await_all(channel, waiting, answer)


def _await_all(channel, count, answer):
    for _ in range(count if answer is not None else 0):
        channel.await_reply(answer)


class NoLink:
    """Stand-in for a link that cannot exist, because the upstream is invalid, or was set while the broker had
    no federation. The Upstream's ``fault`` is the reason. ``type`` and ``name``: as of a FederationLink.
    """

    has_ended = True

    def __init__(self, context, vhost, name, upstream, type_):
        self.vhost = vhost
        self.name = name
        self.type = type_
        self.upstream = upstream
        self.exchange = vhost.exchanges.get(name) if type_ == EXCHANGE else None
        self.id = id_of(type_, vhost.name, name, upstream)
        self.title = title_of(type_, vhost.name, name, upstream)
        self.state = WAITING if upstream.waiting else FAULTY
        self.told_status = None
        self._context = context
        self._since_s = time.time()

    def __repr__(self):
        return f"<NoLink {self.title}: {self.state}>"

    def start(self):
        """Report the state to operators. Nothing is started."""
        self._context.on_change(self)

    def stop(self):
        """Do nothing."""

    clean_up = restart = rights_changed = gone = stop

    def binding_made(self, _binding):
        """Do nothing."""

    binding_gone = queue_had_turn = binding_made

    def described(self):
        return {
            "node": self._context.node_name, self.type: self.name, f"upstream_{self.type}": self.name,
            "type": self.type, "vhost": self.vhost.name, "upstream": self.upstream.name, "id": self.id,
            "status": self.state, "uri": "", "consumer_tag": "", "ack_mode": self.upstream.ack_mode,
            "timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self._since_s)),
            "local_connection": "", "moved": 0, "unconfirmed": 0, "refused": 0, "set_aside": 0,
            "reconnects": 0, "rate": 0.0, "blocked": False, "error": self.upstream.fault[:ERROR_CHARACTERS],
        }
