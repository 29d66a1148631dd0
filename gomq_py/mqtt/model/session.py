"""Session: keeps the state of one client id: its subscriptions, and the queue of its messages.

Subscriptions are bindings of the MQTT exchange, which passes them to ``subscribed``; so sessions of an
earlier run get theirs from the definitions log.
"""
from functools import lru_cache

from gomq_py.broker.topology.bindings import identity_of
from gomq_py.errors import Refused
# Imported with the first session: a later import, in the middle of a change, might fail.
from gomq_py.mqtt.model import (  # noqa: F401
    qos2_records, replays, session_queue, shared_subscriptions,
)
from gomq_py.mqtt.model.interests import Interests
from gomq_py.mqtt.model.received import Received
from gomq_py.mqtt.model.sent import Sent
from gomq_py.mqtt.model.session_kind import PREFIX
from gomq_py.mqtt.wire.topics import is_shared
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

QUIET = QuietLog(logger("mqtt"))

_QOS, _NO_LOCAL, _AS_PUBLISHED, _HANDLING, _IDENTIFIER = (
    "x-mqtt-qos", "x-mqtt-nl", "x-mqtt-rap", "x-mqtt-rh", "x-mqtt-id"
)


class Subscription:
    """A client's request for a topic filter's messages (MQTT 5 §3.8.3.1). ``identifier``: 0 if the client
    sent none. Only ``binding`` changes after creation.
    """

    __slots__ = (
        "topic_filter", "qos", "no_local", "retain_as_published", "retain_handling", "identifier", "binding")

    def __init__(
        self, topic_filter, qos, no_local=False, retain_as_published=False, retain_handling=0, identifier=0
    ):
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier
        self.binding = None

    def __eq__(self, other):
        return isinstance(other, Subscription) and self._values() == other._values()

    def __hash__(self):
        return hash(self._values())

    def __repr__(self):
        return f"<Subscription {self.topic_filter!r} {self.arguments()}>"

    def _values(self):
        return (
            self.topic_filter, self.qos, self.no_local, self.retain_as_published, self.retain_handling,
            self.identifier)

    def arguments(self):
        """Return the binding's arguments: QoS and non-default options. Equal arguments share a dict."""
        return _arguments(*self._values()[1:])


@lru_cache(64)
def _arguments(qos, no_local, as_published, handling, identifier):
    options = {_QOS: qos}
    if no_local:
        options[_NO_LOCAL] = True
    if as_published:
        options[_AS_PUBLISHED] = True
    if handling:
        options[_HANDLING] = handling
    if identifier:
        options[_IDENTIFIER] = identifier
    return options


def subscription_of(binding):
    """Return the Subscription for a binding. Ignores invalid arguments, which an operator may have given."""
    options = binding.arguments
    subscription = Subscription(
        binding.routing_key, _number(options, _QOS, 2), options.get(_NO_LOCAL) is True,
        options.get(_AS_PUBLISHED) is True, _number(options, _HANDLING, 2),
        _number(options, _IDENTIFIER, 268_435_455))
    subscription.binding = binding
    return subscription


def _number(options, key, most):
    value = options.get(key)
    return value if type(value) is int and 0 <= value <= most else 0


class Session:
    """The state of a client id.

        user                   name of the user who connected last
        of_token               True if that user logged in by a token
        version                protocol level
        kept                   arguments that limit the queue
        connection             the client's connection; None while absent, like may_get and may_get_all
        may_get(filter)        whether the client may receive messages by the topic filter
        may_get_all()          whether the client may receive messages by every filter
        queue                  the SessionQueue, or None until one is needed
        sink                   the Destination of QoS 0 messages while the client is connected, else None
        is_durable             the session outlives its connection, for ``expiry_s`` seconds
        is_safe                the session's definition is known to be on disk
        subscriptions          {topic filter: Subscription}, changed by its bindings alone
        sent, received         packet identifiers in flight, which outlive connections
        is_doubtful            the client may hold more identifiers, whose records a power loss deleted
    """

    def __init__(self, sessions, client_id):
        self.client_id = client_id
        self.user, self.of_token, self.version, self.expiry_s = "", False, 4, 0
        self.kept = {}
        self.connection = self.may_get = self.may_get_all = None
        self.queue = None
        self.sink = None
        self.is_durable = self.is_safe = self.is_doubtful = False
        self.subscriptions = {}
        self.interests = Interests(self)
        self.sent = self.received = None
        self._sessions = sessions
        # topic filter: [bindings] before the one in force: the broker was killed between a change of the
        # subscription and the removal of the old binding
        self._earlier = {}

    def __repr__(self):
        state = "connected" if self.connection is not None else "absent"
        return f"<Session {self.client_id!r}, {state}, {len(self.subscriptions)} subscriptions>"

    @property
    def owner(self):
        """Return (name, whether a token named it) of the user who connected last."""
        return self.user, self.of_token

    @property
    def exchange(self):
        return self._sessions.exchange

    @property
    def queue_name(self):
        """Name of the session's queue, which need not exist."""
        return PREFIX + self.client_id

    def subscribe(self, subscription):
        """Add or change a subscription with a valid filter, and create the session's queue if needed. Returns
        True if the filter is new. Raises OutOfResources, PreconditionFailed.
        """
        vhost, source = self._sessions.vhost, self._sessions.exchange
        destination = self._destination(subscription.qos)
        before = self._bindings(subscription.topic_filter)
        options = subscription.arguments()
        now = identity_of(destination, subscription.topic_filter, options)
        old = [binding for binding in before if binding.identity != now]
        # Add the new binding before the old one is removed, so that a kill in between leaves one. A binding
        # that exists already is removed first if a later one is in force.
        if len(old) < len(before) and before[-1].identity != now:
            vhost.bindings.detach(source, destination, subscription.topic_filter, options)
        vhost.bindings.attach(source, destination, subscription.topic_filter, options)
        try:
            for binding in old:
                self._detach(binding)
        except Refused as error:  # a binding not in force is removed with the next change
            QUIET.warning(
                self.queue_name, "an old binding of session %r stays: %s", self.client_id[:256], error.text)
        return not before

    def unsubscribe(self, topic_filter):
        """Remove a subscription. Returns whether the subscription existed. Raises OutOfResources."""
        bindings = self._bindings(topic_filter)
        for binding in bindings:
            self._detach(binding)
        return bool(bindings)

    def _detach(self, binding):
        self._sessions.vhost.bindings.detach(
            self._sessions.exchange, binding.destination, binding.routing_key, binding.arguments)

    def _destination(self, qos):
        if self.queue is None and (qos or self.sink is None):
            self._sessions.make_queue(self)
        return self.queue if self.is_durable or qos or self.sink is None else self.sink

    def keeps(self, topic_filter):
        """Return whether messages of this filter's subscription are kept in the session's queue."""
        subscription = self.subscriptions.get(topic_filter)
        return subscription is None or subscription.binding.destination is not self.sink

    def is_allowed_all(self):
        """Return whether the client may now receive messages by every filter."""
        return self.may_get is None or self.may_get_all is not None and self.may_get_all()

    def allowed(self, filters):
        """Return a list of the ``filters`` whose messages the client may receive now."""
        may_get = self.may_get
        return filters if may_get is None else [one for one in filters if may_get(one)]

    def may_have(self, topic):
        """Return whether a client that has unsubscribed from a topic may get its messages queued earlier."""
        return self.may_get is None or not is_shared(topic) and self.may_get(topic)

    # messages in flight

    def sent_from(self, queue):
        """Return the Sent (messages in flight to the client). The first call makes it for this queue."""
        if self.sent is None:
            self.sent = Sent(queue, *self._kept(queue))
            self.sent.doubts = self.is_doubtful
        return self.sent

    def received_ids(self):
        """Return the session's Received (QoS 2 identifiers not released). The first call makes it."""
        if self.received is None:
            self.received = Received(*self._kept(self.queue))
        return self.received

    def ended(self):
        """Drop all packet identifiers in flight, because the session has ended."""
        for one in (self.sent, self.received):
            if one is not None:
                one.close()
                if one.records is not None:
                    one.records.moved()
        self.sent = self.received = None
        self.interests.close()

    def _kept(self, queue):
        """Return (QoS2Records, key of the session) for a durable session, otherwise (None, 0)."""
        if queue is None or not self.is_durable:
            return None, 0
        records = self._sessions.qos2_records
        return records, records.key_of(queue)

    def queue_added(self, queue):
        """Use this queue, which is new, recovered, or reopened after a fault."""
        queue.session, self.queue = self, queue
        self.is_durable = bool(queue.durable)
        if self.sent is not None:
            self.sent.moved_to(queue)

    def queue_deleted(self, queue, reason):
        """End the session, because its queue was deleted. Does nothing for a queue that was replaced."""
        if self.queue is queue:
            self._sessions.ended(self, reason)

    def queue_failed(self, queue):
        """Have this session's SharedSubscriptions replaced: its queue failed, and may have lost messages."""
        if self.queue is queue:
            self._sessions.queue_failed(self)

    # for the exchange

    def subscribed(self, binding):
        """Use a new binding. The latest binding of a filter defines its subscription."""
        self._lead(binding.routing_key, [*self._bindings(binding.routing_key), binding])

    def unsubscribed(self, binding):
        bindings = self._bindings(binding.routing_key)
        if binding in bindings:
            bindings.remove(binding)
            self._lead(binding.routing_key, bindings)

    def _bindings(self, topic_filter):
        """Return the bindings for this filter; the last one is in force."""
        subscription = self.subscriptions.get(topic_filter)
        return [] if subscription is None else [*self._earlier.get(topic_filter, ()), subscription.binding]

    def _lead(self, topic_filter, bindings):
        """Set a filter's bindings, of which the last is in force. [] ends the subscription."""
        self._earlier.pop(topic_filter, None)
        if bindings:
            if topic_filter not in self.subscriptions:
                self._sessions.arranged(self, topic_filter, 1)
            *earlier, now = bindings
            if earlier:
                self._earlier[topic_filter] = earlier
            self.subscriptions[topic_filter] = subscription_of(now)
        else:
            del self.subscriptions[topic_filter]
            self._sessions.arranged(self, topic_filter, -1)
        self.interests.changed(topic_filter)
