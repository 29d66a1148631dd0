"""Session: what the broker keeps of one client id: its subscriptions, and the queue of what it is to get.

Made and ended by sessions.Sessions. Subscriptions are bindings of the MQTT exchange, so that a session of an
earlier run has those that the log has: they come by ``subscribed``, whoever made the binding.
"""
from gomq_py.broker.topology.binding import identity_of

_QOS, _NO_LOCAL, _AS_PUBLISHED, _HANDLING, _IDENTIFIER = (
    "x-mqtt-qos", "x-mqtt-nl", "x-mqtt-rap", "x-mqtt-rh", "x-mqtt-id"
)


class Subscription:
    """What a client asks for with one topic filter (MQTT 5 §3.8.3.1); ``identifier`` is 0 where it has none.
    A value.
    """

    __slots__ = ("topic_filter", "qos", "no_local", "retain_as_published", "retain_handling", "identifier")

    def __init__(
        self, topic_filter, qos, no_local=False, retain_as_published=False, retain_handling=0, identifier=0
    ):
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier

    def __eq__(self, other):
        return isinstance(other, Subscription) and self._values() == other._values()

    def __hash__(self):
        return hash(self._values())

    def __repr__(self):
        return f"<Subscription {self.topic_filter!r} {self.arguments()}>"

    def _values(self):
        return tuple(getattr(self, name) for name in self.__slots__)

    def arguments(self):
        """The arguments of its binding: what is not as usual."""
        options = {_QOS: self.qos}
        if self.no_local:
            options[_NO_LOCAL] = True
        if self.retain_as_published:
            options[_AS_PUBLISHED] = True
        if self.retain_handling:
            options[_HANDLING] = self.retain_handling
        if self.identifier:
            options[_IDENTIFIER] = self.identifier
        return options


def subscription_of(binding):
    """The Subscription that a binding is, also one that an operator has made."""
    options = binding.arguments
    return Subscription(
        binding.routing_key, _number(options, _QOS, 2), options.get(_NO_LOCAL) is True,
        options.get(_AS_PUBLISHED) is True, _number(options, _HANDLING, 2),
        _number(options, _IDENTIFIER, 268_435_455))


def _number(options, key, most):
    value = options.get(key)
    return value if type(value) is int and 0 <= value <= most else 0


class Session:
    """``user`` has connected last, with this ``version`` of the protocol's level, to be kept ``expiry_s``.
    ``connection``: whoever speaks for the client now, or None. ``queue``: its SessionQueue, or None while
    nothing is kept for it; ``sink``: the Destination of what is not kept, while it is connected, or None.
    ``is_durable``: it outlives its connection. ``subscriptions``: {topic filter: Subscription}, changed by
    its bindings alone.
    """

    def __init__(self, sessions, client_id):
        self.client_id = client_id
        self.user, self.version, self.expiry_s = "", 4, 0
        self.connection = None
        self.queue = None
        self.sink = None
        self.is_durable = False
        self.subscriptions = {}
        self._sessions = sessions
        self._bindings = {}  # topic filter: the binding in force

    def __repr__(self):
        state = "connected" if self.connection is not None else "absent"
        return f"<Session {self.client_id!r}, {state}, {len(self.subscriptions)} subscriptions>"

    def subscribe(self, subscription):
        """Subscribe, or change the subscription to this filter, which has no fault and is not shared. Returns
        whether there was none.

        What is kept goes to its queue, which is made with the first filter that asks for it. Raises
        OutOfResources, PreconditionFailed.
        """
        vhost, source = self._sessions.vhost, self._sessions.exchange
        destination = self._destination(subscription.qos)
        before = self._bindings.get(subscription.topic_filter)
        options = subscription.arguments()
        vhost.attach(source, destination, subscription.topic_filter, options)
        if before is None:
            return True
        if before.identity != identity_of(destination, subscription.topic_filter, options):
            vhost.detach(source, before.destination, before.routing_key, before.arguments)
        return False

    def unsubscribe(self, topic_filter):
        """Returns whether there was a subscription. Raises OutOfResources."""
        binding = self._bindings.get(topic_filter)
        if binding is None:
            return False
        return self._sessions.vhost.detach(
            self._sessions.exchange, binding.destination, binding.routing_key, binding.arguments)

    def _destination(self, qos):
        if self.queue is None and (qos or self.sink is None):
            self._sessions.make_queue(self)
        return self.queue if self.is_durable or qos or self.sink is None else self.sink

    def queue_deleted(self, queue, reason):
        """Its queue was deleted, unless that was opened again and is another object."""
        if self.queue is queue:
            self._sessions.queue_deleted(self, reason)

    # for the exchange

    def subscribed(self, binding):
        """A binding leads here: the latest one to a filter is its subscription."""
        self._bindings[binding.routing_key] = binding
        self.subscriptions[binding.routing_key] = subscription_of(binding)

    def unsubscribed(self, binding):
        """A binding leads here no more."""
        if self._bindings.get(binding.routing_key) is binding:
            del self._bindings[binding.routing_key]
            del self.subscriptions[binding.routing_key]
