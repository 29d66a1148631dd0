"""Client login: who a client is, whichever door it comes through, and what events tell of that.

Between a door's login, which reads what the client sends and answers it in its protocol's words, and
broker.verbs.entering, which decides.
"""
from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.signals.events import logged_in
from gomq_py.broker.verbs.entering import check_credentials
from gomq_py.net.listener import login_host


class ClientLogin:
    """The login of the client of one connection, within ``timeout_s``."""

    __slots__ = ("connection", "server", "broker", "clients", "host", "timeout_s")

    def __init__(self, connection, timeout_s):
        self.connection = connection
        self.server = connection.server
        self.broker = connection.server.broker
        self.clients = connection.hub.clients
        self.host = login_host(connection.socket, connection.peer_host)
        self.timeout_s = timeout_s

    def checked(self, username, password, deadline, protocol):
        """The User; events call what it speaks ``protocol``. Raises LoginRefused. May switch."""
        try:
            return check_credentials(
                self.broker.logins, self.clients, username, password, self.host, deadline)
        except LoginRefused as error:
            self.tell("failure", username, protocol, str(error))
            raise

    def tell(self, outcome, username, protocol, *error):
        """The event exchange: the login has come to a ``success`` or ``failure``, unless it is the broker's
        stop that refuses all clients.
        """
        if error and self.clients.is_closing:
            return
        one = self.connection
        self.broker.events.emit(
            f"user.authentication.{outcome}", logged_in, one.name, username, one.socket,
            (one.peer_host, one.peer_port), protocol, *error)
