"""A federation link: from one upstream to one exchange or queue of this broker.

Kinds are subclasses: what is declared upstream, when messages are taken, and what is written on them. The
link of gomq_py.links moves them. Owned by the supervisor, which says when it starts and stops. A NoLink
stands where an upstream has none, so that people see that, and why.
"""
import time
from urllib.parse import urlsplit

from gomq_py.broker.exchanges.federation_upstream import RECEIVED_FROM
from gomq_py.broker.features.federation import UPSTREAM
from gomq_py.broker.policies.parameters import FAULTY, WAITING
from gomq_py.broker.policies.policy import EXCHANGE
from gomq_py.client.backoff import Backoff
from gomq_py.digests import sha256
from gomq_py.links.ends import NO_ACK, Source, Target
from gomq_py.links.link import Link
from gomq_py.observability.secrets import without_passwords

# The virtual host is said when it is connected to. A URI of this broker, for the end of a link that is in it.
HERE = "amqp://"
# Seconds between attempts at most, of an upstream with a shorter delay.
MOST_DELAY_S = 30
# The most that is shown of an error, which may come from another broker.
ERROR_CHARACTERS = 500
# Methods whose answers are awaited together.
PIPELINED = 200
NOT_FOUND = 404


class FederationLink:
    """``type`` is "exchange" or "queue", ``name`` what it is called here. ``id`` is short, and the same as
    long as the link leads from the same place to the same one.

    ``ways`` is what all links of a broker share (supervisor.Ways).
    """

    type = ""
    prefetch = 1000
    begins_paused = False

    def __init__(self, ways, vhost, name, upstream):
        self.vhost = vhost
        self.name = name
        self.upstream = upstream
        self.id = id_of(self.type, vhost.name, name, upstream)
        self.changed_at_s = time.time()
        self.told_status = None
        self.notes = []  # what is otherwise than defined, and does not keep messages from being moved
        self.fault = None  # end and reason why nothing is moved, where no connection is needed to know
        self._ways = ways
        self._is_administrators = False  # when it was started
        self._by = None  # who set the upstream, when it was connected to
        self._uri = ""  # of the upstream, as it was connected to last
        self._is_gone = False
        self._link = (ways.make_link or Link)(
            ways.hub, f"federation link {self.title}", self._source(), self._target(),
            ack_mode=upstream.ack_mode,
            backoff=Backoff(upstream.reconnect_delay_s, max(upstream.reconnect_delay_s, MOST_DELAY_S)),
            refusals=upstream.refusal_limit, connect=self._connect_upstream,
            connect_target=self._connect_here, ends_with=frozenset(),
            on_change=self._changed, on_end=self._ended, paused=self.begins_paused,
            account=(vhost.set_by.get((UPSTREAM, upstream.name)), vhost.name),
        )

    def __repr__(self):
        return f"<FederationLink {self.title}: {self.state}>"

    @property
    def title(self):
        """What it is called in the log and among the connections."""
        return title_of(self.type, self.vhost.name, self.name, self.upstream)

    # for the supervisor

    def start(self):
        """Begin, where that is not so already, and go on until stop()."""
        if self._link.has_ended:
            self.restart()

    def stop(self):
        """Take no more messages; what is upstream stays there."""
        self._link.stop()

    @property
    def has_ended(self):
        """Whether nothing of it runs any more."""
        return self._link.has_ended

    def clean_up(self):
        """After stop(): nobody takes up what was made upstream for this link."""

    def gone(self):
        """After clean_up(): the supervisor has forgotten the link, which goes when nothing of it runs."""
        self._is_gone = True
        self._let_go()

    def _let_go(self):
        """Drop the parts that call back, and so hold the link, once they have ended."""
        if self._is_gone and self._link is not None and self._link.has_ended:
            self._link = None

    def restart(self):
        """Connect anew, where whoever set the upstream may."""
        self.fault = self._refusal()
        self._is_administrators = self._ways.is_administrators(self.vhost, self.upstream.name)
        if self.fault is None:
            self._link.restart()
        else:
            self._link.stop()
            self._changed(self._link)

    def rights_changed(self):
        """Of whoever set the upstream: stop where they do not suffice any more, go on where they do again."""
        is_less = self._is_administrators and not self._ways.is_administrators(self.vhost, self.upstream.name)
        if is_less or self._refusal() != self.fault:
            self.restart()

    @property
    def state(self):
        """That of the link; "error" also while it waits after an attempt that failed, as RabbitMQ says."""
        if self.fault is not None:
            return "error"
        status = self._link.status
        return "error" if status.state == "starting" and status.error else status.state

    def described(self):
        """What people see of it, with RabbitMQ's names where it has them."""
        status = self._link.status
        shown = {
            "node": self._ways.node_name, self.type: self.name,
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

    # what kinds define

    def _source(self):
        raise NotImplementedError

    def _target(self):
        raise NotImplementedError

    def _received_from(self):
        """What is said of the upstream on each message, without what is the message's own."""
        return {"uri": without_login(self._uri), self.type: getattr(self.upstream, self.type)}

    # for kinds

    def _refusal(self):
        """Why the messages may not be published here, or not be taken where the upstream is this broker too;
        None: they may.
        """
        return self._ways.refusal(
            self.vhost, self.upstream, self.type, self.name, self._link.target.exchange)

    def _make_source(self, prepare, consumer_arguments=None, exclusive=False):
        upstream = self.upstream
        return Source(
            list(upstream.uris), prepare=prepare, prefetch=upstream.prefetch_count or self.prefetch,
            consumer_arguments=consumer_arguments, exclusive=exclusive, consumer_tag=upstream.consumer_tag,
            no_ack=upstream.ack_mode == NO_ACK,
        )

    def _make_target(self, exchange, routing_key, edit, stamp=None):
        return Target([HERE], exchange, routing_key, edit=edit, stamp=stamp)

    def _connect_upstream(self, uri=""):
        """To the broker at this URI, or where it was connected to last.

        May switch. Raises ValueError, OSError, ClientError.
        """
        self._uri = uri or self._uri or self.upstream.uris[0]
        return self._connect(self._uri)

    def _connect_here(self, uri):
        return self._connect(uri)

    def _connect(self, uri):
        self._by = self._ways.set_by(self.vhost, self.upstream.name, self._by)
        return self._ways.connect(
            uri, self.vhost, self.upstream.name, self._by, f"federation link {self.title}")

    # what the link says

    def _changed(self, _link):
        self.changed_at_s = time.time()
        self._ways.on_change(self)
        self._let_go()

    def _ended(self, _link, reason):
        self.changed_at_s = time.time()
        self._ways.on_end(self, reason)


def title_of(type_, vhost, name, upstream):
    """What a link is called in the log and among the connections."""
    return f"of {type_} '{name}' in vhost '{vhost}' from upstream '{upstream.name}'"


def id_of(type_, vhost, name, upstream):
    """Short, and the same as long as the link leads from the same place to the same one."""
    said = "\0".join((type_, vhost, name, upstream.name, upstream.exchange, upstream.queue))
    return sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def without_login(uri):
    """The URI without user, password and options, for messages, which go anywhere."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def with_received(properties, told, passed, trusts_user_id):
    """Write on a message's Properties where it came from, in front of where it has been before."""
    headers = properties.headers or {}
    properties.headers = {**headers, RECEIVED_FROM: [told, *passed]}
    if not trusts_user_id:
        properties.user_id = None
    return properties


def call_all(channel, methods, answer):
    """Send many methods, and wait for their answers, some hundred at once; None: there are none. May switch.

    Raises what the client raises.
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
    """Stands where an upstream has no link: an earlier run has stored what makes no upstream, or it was set
    while nothing acted on it. Owned by the supervisor, as links are, and asked for the same; it connects to
    nobody.

    ``type`` and ``name`` as of FederationLink; the Upstream has a ``fault``.
    """

    has_ended = True

    def __init__(self, ways, vhost, name, upstream, type_):
        self.vhost = vhost
        self.name = name
        self.type = type_
        self.upstream = upstream
        self.exchange = vhost.exchanges.get(name) if type_ == EXCHANGE else None
        self.id = id_of(type_, vhost.name, name, upstream)
        self.title = title_of(type_, vhost.name, name, upstream)
        self.state = WAITING if upstream.waiting else FAULTY
        self.told_status = None
        self._ways = ways
        self._since_s = time.time()

    def __repr__(self):
        return f"<NoLink {self.title}: {self.state}>"

    def start(self):
        """It is there to be seen."""
        self._ways.on_change(self)

    def stop(self):
        """Nothing runs."""

    clean_up = restart = rights_changed = gone = stop

    def binding_made(self, _binding):
        """Nobody is told."""

    binding_gone = queue_had_turn = binding_made

    def described(self):
        """As of a link."""
        return {
            "node": self._ways.node_name, self.type: self.name, f"upstream_{self.type}": self.name,
            "type": self.type, "vhost": self.vhost.name, "upstream": self.upstream.name, "id": self.id,
            "status": self.state, "uri": "", "consumer_tag": "", "ack_mode": self.upstream.ack_mode,
            "timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self._since_s)),
            "local_connection": "", "moved": 0, "unconfirmed": 0, "refused": 0, "set_aside": 0,
            "reconnects": 0, "rate": 0.0, "blocked": False, "error": self.upstream.fault[:ERROR_CHARACTERS],
        }
