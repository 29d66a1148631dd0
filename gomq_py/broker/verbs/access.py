"""Access: what a user may do in a vhost. Between verbs and auth: the user's permissions decide.

Publishing on a cached route asks nothing here: the route carries the revision of the user's rights instead.
"""
from gomq_py.auth.permissions import CONFIGURE, DEFAULT_EXCHANGE, READ, WRITE
from gomq_py.broker.names import described
from gomq_py.errors import NoPermission

QUEUE, EXCHANGE = "queue", "exchange"
TOPIC = "topic"
# RabbitMQ's words.
REFUSED = "access to {} refused for user '{}'"


class Access:
    """``user`` in a vhost. ``kind`` is QUEUE or EXCHANGE; names are as the model keeps them, without carriage
    returns and line feeds. ``client_id``: what ``{client_id}`` in topic permissions stands for, where clients
    have one.

    The methods that ask for a right raise NoPermission, in RabbitMQ's words.
    """

    __slots__ = ("user", "vhost_name", "_client_id")

    def __init__(self, user, vhost_name, client_id=None):
        self.user = user
        self.vhost_name = vhost_name
        self._client_id = client_id

    def configure(self, kind, name):
        """May create, change and delete it."""
        self._require(CONFIGURE, kind, name)

    def write(self, kind, name):
        """May put messages into it."""
        self._require(WRITE, kind, name)

    def read(self, kind, name):
        """May take messages out of it."""
        self._require(READ, kind, name)

    def hand_on(self, kind, name, existing, arguments, keys):
        """May declare something that hands messages on to the exchanges that the arguments name under
        ``keys``: read it, and write to them.

        Asks nothing if the name is among the ``existing``: such a declare only compares, and whoever made the
        entity had the rights.
        """
        if name in existing:
            return
        for key in keys:
            if isinstance(arguments.get(key), str):
                self.read(kind, name)
                self.write(EXCHANGE, arguments[key])

    def write_topic(self, exchange, routing_keys):
        """May publish to that exchange with these routing keys, where it is a topic exchange."""
        self._require_topic(WRITE, exchange, routing_keys)

    def read_topic(self, exchange, routing_key):
        """May bind to that exchange (None where there is none) with this routing key, where it is a topic
        exchange.
        """
        if exchange is not None:
            self._require_topic(READ, exchange, (routing_key,))

    def reads_any_topic(self, exchange):
        """Whether read_topic() would pass for that exchange whatever the routing key is."""
        return (
            exchange is None or exchange.type != TOPIC
            or self.user.topic_permission(self.vhost_name, exchange.name) is None)

    def may_write(self, name):
        """Whether write() would pass."""
        return self._allows(WRITE, name)

    def may_read(self, name):
        """Whether read() would pass."""
        return self._allows(READ, name)

    def may_publish(self, exchange, *routing_keys):
        """Whether write() and write_topic() would pass."""
        if not self._allows(WRITE, exchange.name):
            return False
        # asked for each route that is not remembered: 1 us less of 7 than a question per key
        if exchange.type == TOPIC:
            for routing_key in routing_keys:
                if not self._allows_topic(WRITE, exchange, routing_key):
                    return False
        return True

    @property
    def state(self):
        """The state whose revision is bumped when the user's rights change."""
        return self.user.state

    def _allows(self, verb, name):
        # Looked up each time: a permission is replaced, and may be withdrawn, while the connection is open.
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
                raise NoPermission(refusal(topic, self.user))

    def _require(self, verb, kind, name):
        if not self._allows(verb, name):
            shown = name or (DEFAULT_EXCHANGE if kind == EXCHANGE else "")
            raise NoPermission(refusal(described(kind, shown, self.vhost_name), self.user), verb)


class AllAccess(Access):
    """For a door that asks for no rights: whoever came in may do everything."""

    __slots__ = ()

    def _allows(self, verb, name):
        return True

    def _allows_topic(self, verb, exchange, routing_key):
        return True

    def reads_any_topic(self, exchange):
        return True


def may_enter(user, vhost_name):
    """Whether a user may do anything at all in a vhost: has a permission there, however little it grants."""
    return user.permission(vhost_name) is not None


def refusal(what, user):
    """The text for a user who may not do what was asked with ``what``."""
    return REFUSED.format(what, user.name)
