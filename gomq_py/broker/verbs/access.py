"""Access: checks a user's rights in a vhost, by the permissions that auth stores.

Publishing on a cached route checks nothing here: the route holds the revision of the user's rights.
"""
from gomq_py.auth.permissions import CONFIGURE, DEFAULT_EXCHANGE, READ, WRITE
from gomq_py.broker.names import described
from gomq_py.errors import NoPermission

QUEUE, EXCHANGE = "queue", "exchange"
TOPIC = "topic"
# RabbitMQ's text; 4.3 tells the right that is missing.
REFUSED = "access to {} refused for user '{}'"


class Access:
    """Checks the rights of ``user`` in a vhost. The methods check_...() raise NoPermission. ``kind`` is QUEUE
    or EXCHANGE; names must be free of carriage returns and line feeds. ``client_id`` (MQTT) replaces
    ``{client_id}`` in topic permissions. Error texts are RabbitMQ's.
    """

    __slots__ = ("user", "vhost_name", "_client_id")

    def __init__(self, user, vhost_name, client_id=None):
        self.user = user
        self.vhost_name = vhost_name
        self._client_id = client_id

    def check_configure(self, kind, name):
        """Check the right "configure": to create, change and delete the queue or exchange."""
        self._require(CONFIGURE, kind, name)

    def check_write(self, kind, name):
        """Check the right "write": to put messages into the queue or exchange."""
        self._require(WRITE, kind, name)

    def check_read(self, kind, name):
        """Check the right "read": to take messages from the queue or exchange."""
        self._require(READ, kind, name)

    def check_hand_on(self, kind, name, existing, arguments, keys):
        """Check the rights to declare an entity that sends messages to exchanges named in its arguments.
        ``keys``: the names of these arguments. Needs read on the entity and write on these exchanges. A name
        in ``existing`` needs no check, because the declare changes nothing.
        """
        if name in existing:
            return
        for key in keys:
            if isinstance(arguments.get(key), str):
                self.check_read(kind, name)
                self.check_write(EXCHANGE, arguments[key])

    def check_write_topic(self, exchange, routing_keys):
        """Check the topic permission to publish with these routing keys, if this is a topic exchange."""
        self._require_topic(WRITE, exchange, routing_keys)

    def check_read_topic(self, exchange, routing_key):
        """Check the topic permission to bind with this key. Passes if ``exchange`` is no topic exchange."""
        if exchange is not None:
            self._require_topic(READ, exchange, (routing_key,))

    def reads_any_topic(self, exchange):
        """True if check_read_topic() passes for this exchange with any routing key."""
        return (
            exchange is None or exchange.type != TOPIC
            or self.user.topic_permission(self.vhost_name, exchange.name) is None)

    def may_write(self, name):
        return self._allows(WRITE, name)

    def may_read(self, name):
        return self._allows(READ, name)

    def may_publish(self, exchange, *routing_keys):
        """True if the user may publish to the exchange with all these routing keys."""
        if not self._allows(WRITE, exchange.name):
            return False
        # runs for each new route: 1 us less of 7 than a call per key
        if exchange.type == TOPIC:
            for routing_key in routing_keys:
                if not self._allows_topic(WRITE, exchange, routing_key):
                    return False
        return True

    @property
    def state(self):
        """An ExchangeState whose ``revision`` counts changes of the user's rights (fast to read)."""
        return self.user.state

    def _allows(self, verb, name):
        # Looked up each time: a permission may be replaced or withdrawn while the connection is open.
        permission = self.user.permission(self.vhost_name)
        return permission is not None and permission.allows(verb, name)

    def _allows_topic(self, verb, exchange, routing_key):
        if exchange.type != TOPIC:
            return True
        limit = self.user.topic_permission(self.vhost_name, exchange.name)
        return limit is None or limit.allows(verb, routing_key, self._client_id)

    def _require_topic(self, verb, exchange, routing_keys):
        for routing_key in routing_keys:
            if not self._allows_topic(verb, exchange, routing_key):
                topic = f"topic '{routing_key}' in {described(EXCHANGE, exchange.name, self.vhost_name)}"
                raise NoPermission(f"{verb} {refusal(topic, self.user)}")

    def _require(self, verb, kind, name):
        if not self._allows(verb, name):
            shown = name or (DEFAULT_EXCHANGE if kind == EXCHANGE else "")
            what = described(kind, shown, self.vhost_name)
            raise NoPermission(f"{verb} {refusal(what, self.user)}", verb)


class AllAccess(Access):
    """Allows everything, for operators and for servers without permissions of their own."""

    __slots__ = ()

    def _allows(self, verb, name):
        return True

    def _allows_topic(self, verb, exchange, routing_key):
        return True

    def reads_any_topic(self, exchange):
        return True


def may_enter(user, vhost_name):
    """True if the user has any permission in the vhost."""
    return user.permission(vhost_name) is not None


def refusal(what, user):
    """Return RabbitMQ's text of a refusal. ``what``: the entity that the user may not access, as text."""
    return REFUSED.format(what, user.name)
