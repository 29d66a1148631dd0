"""AMQP server: serves each accepted socket, and owns the objects that AMQP connections share, such as the
consumer timeouts.

A listener calls handle() for each accepted socket. Never accepts sockets and never parses frames.
"""

from gomq_py.amqp.server.confirms import Confirms
from gomq_py.amqp.server.connection import Connection
from gomq_py.amqp.server.consumer_timeouts import ConsumerTimeouts, LookAgain
from gomq_py.amqp.server.local import LocalClients
from gomq_py.amqp.server.withdrawals import Withdrawals
from gomq_py.broker.verbs.access import Access
from gomq_py.net.listener import host_of
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

# Lines about closed channels in ten seconds. A client can cause some 1000 a second, which would be 15 GB a
# day; repeated ones of a connection are counted.
CHANNEL_ERRORS_MAX = 500


class AMQPServer:
    """Serves the AMQP 0-9-1 clients of ``broker``. ``local``: connects clients inside this process."""

    def __init__(self, broker, settings, hub):
        self.broker = broker
        self.hub = hub
        self.settings = settings
        self.tables = broker.tables
        self.gate = hub.admission.gate("")  # AMQP's limits for strangers have no protocol in their names
        self.timeouts = ConsumerTimeouts(hub.timers)
        hub.at_close(self.timeouts.close)
        look_again = LookAgain(hub.clients)
        broker.on_consumer_timeout(lambda: look_again.begin(hub.scheduler))
        self.withdrawals = Withdrawals(hub.clients, hub.scheduler)
        broker.users.rights_watchers.append(self.withdrawals.begin)
        self._access = None
        # rate-limited log for events that unauthenticated peers can trigger at will
        self.strangers = QuietLog(logger("amqp"))
        self._channel_errors = QuietLog(logger("amqp"), most=CHANNEL_ERRORS_MAX)
        # makes the confirms of a channel; gomq_py.testing replaces it by a less reliable class
        self.make_confirms = Confirms
        self.local = LocalClients(self)

    def log_channel_error(self, name, channel_id, error):
        """Log that a channel of the connection ``name`` is closed because of ``error``."""
        self._channel_errors.warning(
            (name, str(error)), "connection %s, channel %d: closing the channel with %s", name, channel_id,
            error)

    def access_of(self, user, vhost_name):
        """Return the Access (rights) of a User to a vhost. Several connections may share the object."""
        access = self._access
        if access is None or access.user is not user or access.vhost_name != vhost_name:
            access = self._access = Access(user, vhost_name)
        return access

    def handle(self, socket, address):
        """Serve a client on an accepted socket. Returns None if the client is refused; the caller then closes
        the socket. Otherwise returns ``when_gone(callback)``, a function whose callback is called at the
        connection's end.
        """
        if self.hub.clients.is_closing:
            return None
        admitted = self.gate.identify(socket, host_of(address))
        if admitted is None:
            return None
        connection = Connection(self, socket, address, admitted)
        connection.begin()
        return connection.when_gone
