"""Client login: checks a client's password for all protocols, and emits the events of logins.

The code of each protocol reads and answers the login; broker.verbs.entering decides.
"""
from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.signals.events import logged_in
from gomq_py.broker.verbs.entering import check_credentials
from gomq_py.net.listener import login_host


class ClientLogin:
    """Checks the login of one connection's client, which may take ``timeout_s``."""

    __slots__ = ("connection", "server", "broker", "clients", "host", "timeout_s")

    def __init__(self, connection, timeout_s):
        self.connection = connection
        self.server = connection.server
        self.broker = connection.server.broker
        self.clients = connection.hub.clients
        self.host = login_host(connection.socket, connection.peer_host)
        self.timeout_s = timeout_s

    def checked(self, username, password, deadline, protocol):
        """Check a login; returns the User. ``protocol``: name for events. Raises LoginRefused. May switch."""
        try:
            return check_credentials(
                self.broker.logins, self.clients, username, password, self.host, deadline)
        except LoginRefused as error:
            self.tell("failure", username, protocol, str(error))
            raise

    def tell(self, outcome, username, protocol, *error):
        """Emit the event of a login's ``outcome``, success or failure; no failure while the broker stops."""
        if error and self.clients.is_closing:
            return
        one = self.connection
        self.broker.events.emit(
            f"user.authentication.{outcome}", logged_in, one.name, username, one.socket,
            (one.peer_host, one.peer_port), protocol, *error)
