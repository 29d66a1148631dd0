"""Access: what one connection's user may do in its virtual host. Between the channels' handlers and auth; raises what the client is told.

Never decides: the user's permission does. Publishing on a cached route asks nothing here, the route carries the revision of the user's rights
instead.
"""
from gomq_py.amqp.wire.errors import AccessRefused
from gomq_py.auth.permissions import CONFIGURE, DEFAULT_EXCHANGE, READ, WRITE


class Access:
    """``user`` in a vhost. ``kind`` is "queue" or "exchange"; the first three raise AccessRefused, in RabbitMQ's words."""

    __slots__ = ("user", "_vhost_name")

    def __init__(self, user, vhost_name):
        self.user = user
        self._vhost_name = vhost_name

    def configure(self, kind, name):
        """May create, change and delete it."""
        self._require(CONFIGURE, kind, name)

    def write(self, kind, name):
        """May put messages into it."""
        self._require(WRITE, kind, name)

    def read(self, kind, name):
        """May take messages out of it."""
        self._require(READ, kind, name)

    def may_publish(self, exchange_name):
        """Whether write() on that exchange would pass."""
        return self._allows(WRITE, exchange_name)

    @property
    def state(self):
        """The state whose revision is bumped when the user's rights change."""
        return self.user.state

    def _allows(self, verb, name):
        # Looked up each time: a permission is replaced, and may be withdrawn, while the connection is open.
        permission = self.user.permission(self._vhost_name)
        return permission is not None and permission.allows(verb, name)

    def _require(self, verb, kind, name):
        if not self._allows(verb, name):
            shown = name or (DEFAULT_EXCHANGE if kind == "exchange" else "")
            raise AccessRefused(f"access to {kind} '{shown}' in vhost '{self._vhost_name}' refused for user '{self.user.name}'")
