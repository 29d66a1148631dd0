"""Login: carries out a handshake: reads and writes for it, has the credentials checked and the virtual host
found (broker.verbs.entering), all within ``login_timeout``.

Between the connection's greenlet and the handshake's state table. Nobody else writes to the socket until the
login is done, so it writes itself, and waits. A client that has not logged in can make it hold one small
frame at most.
"""
from functools import lru_cache
from ssl import SSLWantReadError, SSLWantWriteError

from gevent import Timeout
from gevent.socket import socket as PlainSocket

from gomq_py.amqp.server import events
from gomq_py.amqp.server.handshake import (
    EXTERNAL, Closed, Handshake, HandshakeError, Limits, Login, Open, Send, close_frame, start_frame,
)
from gomq_py.amqp.server.server_properties import server_properties
from gomq_py.amqp.wire.errors import ConnectionForced, NotAllowed
from gomq_py.amqp.wire.methods import ConnectionOpen
from gomq_py.auth.certificates import certified_name
from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.patience import Patience
from gomq_py.broker.verbs.entering import check_credentials, enter, lost_entry
from gomq_py.errors import Refused
from gomq_py.hub.clients import SHUTDOWN
from gomq_py.net.output import send_function
from gomq_py.observability.log import logger

LOG = logger("amqp")
# As admission, limits and lists of connections know this door.
DOOR, LOCAL = "amqp", "local"
READ_OCTETS = 16 * 1024


@lru_cache(8)
def greeting(cluster_name, offers_external):
    """connection.start of a broker of this name."""
    return start_frame(server_properties(cluster_name), offers_external)


class Session:
    """The result of a login: ``user``, ``vhost``, ``limits``, and in ``rest`` the octets that were read
    behind it.
    """

    __slots__ = ("user", "vhost", "limits", "rest")

    def __init__(self, user, vhost, limits, rest):
        self.user = user
        self.vhost = vhost
        self.limits = limits
        self.rest = rest


class LoginAttempt:
    """The login of one client.

    ``name`` is the connection's; ``client_properties`` and ``capabilities`` are what the client said.
    ``local_user``: the User that the other end of the socket logs in as with EXTERNAL, where it is this
    process's (see local).
    """

    def __init__(self, server, socket, name, peer_host, peer_port=0, local_user=None):
        settings = server.settings
        self.name = name
        self.user = None
        self._local_user = local_user
        self._server = server
        self._broker = server.broker
        self._clients = server.hub.clients
        self._socket = socket
        self._send_now = send_function(socket)
        self._peer_host = peer_host
        self._peer_port = peer_port
        self._timeout_s = settings.login_timeout
        self._patience = Patience(self._timeout_s, HandshakeError(f"no login within {self._timeout_s} s"))
        self._vhost = None
        self._octets = 0
        offered = Limits(settings.channel_max, settings.frame_max, settings.heartbeat)
        if local_user is not None:
            certified = local_user.name
        else:
            certified = None if type(socket) is PlainSocket else certified_name(socket, settings)
        self._handshake = Handshake(
            offered, greeting(server.cluster_name, certified is not None), certified,
            settings.initial_frame_max)

    @property
    def client_properties(self):
        """The table of connection.start-ok."""
        return self._handshake.client_properties

    @property
    def capabilities(self):
        """What the client says it understands."""
        return self._handshake.capabilities

    @property
    def mechanism(self):
        """How the client logs in."""
        return self._handshake.mechanism

    def run(self):
        """Returns a Session, or None if there is to be no connection; the reason is in the log then. May
        switch.
        """
        handshake = self._handshake
        try:
            with self._patience:
                while self._vhost is None:
                    if not self._advance():
                        self._server.strangers.info(
                            ("closed", self._peer_host), "connection %s closed by the client in handshake",
                            self.name,
                        )
                        return None
                    self._check_not_stopping()
        except HandshakeError as error:
            self._server.strangers.warning(
                ("refused", self._peer_host, handshake.state), "connection %s refused: %s", self.name, error
            )
            self._try_to_send(error.reply)
            return None
        except OSError as error:
            self._server.strangers.info(
                ("lost", self._peer_host), "connection %s lost in handshake state %s: %s", self.name,
                handshake.state, error.strerror or error)
            return None
        return Session(self.user, self._vhost, handshake.limits, handshake.rest())

    def _advance(self):
        """One step, or one read when the handshake wants more.

        False: the client took leave. Raises HandshakeError, OSError. May switch.
        """
        handshake = self._handshake
        step = handshake.next_step()
        if step is None:
            data = self._socket.recv(READ_OCTETS)
            if not data:
                raise HandshakeError(f"the peer closed the socket in handshake state {handshake.state}")
            self._octets += len(data)
            if self._octets > self._server.settings.max_octets_before_login:
                raise HandshakeError(
                    f"{self._octets} octets in handshake state {handshake.state} (max_octets_before_login)"
                )
            handshake.feed(data)
        elif isinstance(step, Send):
            self._send(step.octets)
        elif isinstance(step, Login):
            self._log_in(step)
            self._send(handshake.logged_in())
        elif isinstance(step, Open):
            self._open(step.virtual_host)
            self._send(handshake.opened())
            # Again: while the client took that, user or vhost may have been deleted,
            # and others may have come in.
            self._vhost = self._open(step.virtual_host)
        return not isinstance(step, Closed)

    def _send(self, octets):
        """Send at once, as nearly every socket takes it, or wait as ``sendall`` does. May switch."""
        if not octets:
            return
        try:
            sent = self._send_now(octets)
        except (BlockingIOError, SSLWantReadError, SSLWantWriteError):
            sent = 0
        if sent < len(octets):
            self._socket.sendall(octets[sent:])

    def _log_in(self, login):
        """Check the credentials and tell the event exchange how that went.

        Raises HandshakeError. May switch.
        """
        emit, peer = self._broker.events.emit, (self._peer_host, self._peer_port)
        try:
            self._check(login)
        except HandshakeError as error:
            if not self._clients.is_closing:  # which is no fault of the client's
                emit(
                    "user.authentication.failure", events.logged_in, self.name, login.username, self._socket,
                    peer, str(error),
                )
            raise
        emit("user.authentication.success", events.logged_in, self.name, login.username, self._socket, peer)

    def _check(self, login):
        """Check the credentials.

        Raises HandshakeError. May switch: costly hashes are computed and an issuer's keys fetched in a
        thread.
        """
        if self._local_user is not None and login.mechanism == EXTERNAL:
            self.user = self._local_user
            self._clients.churn.logins_succeeded += 1
            return
        try:
            self.user = check_credentials(
                self._broker.logins, self._clients, login.username, login.password, self._peer_host,
                self._patience,
            )
        except LoginRefused as error:
            raise HandshakeError(str(error), self._handshake.refused()) from error
        self._check_not_stopping()

    def _check_not_stopping(self):
        """Nobody comes in once the server stops. Called after everything that may have switched.

        Raises HandshakeError.
        """
        if self._clients.is_closing:
            error = ConnectionForced(SHUTDOWN)
            raise HandshakeError("the broker stops", self._handshake.reply_to(error))

    def _open(self, name):
        """The vhost of this name. Raises HandshakeError where it is missing or not for this user."""
        door, most = DOOR, self._server.settings.max_connections
        if self._local_user is not None:
            door, most = LOCAL, 0
        try:
            return enter(self._broker, self._clients, self.user, name, door, most)
        except Refused as refused:
            text = refused.text
            if self._local_user is not None and name in self._broker.vhosts:
                text = lost_entry(self._broker.users, self.user, name) or text
            error = NotAllowed(text, ConnectionOpen.ID >> 16, ConnectionOpen.ID & 0xFFFF)
            raise HandshakeError(str(error), close_frame(error)) from refused

    def _try_to_send(self, octets):
        """Send a last answer to a client that may be gone already. The socket then lingers (hub.linger):
        closing it with unread octets would reset the connection before the client has read the answer.

        May switch.
        """
        try:
            sent = False
            with Timeout(self._timeout_s, False):
                self._socket.sendall(octets)
                sent = True
            if sent and octets:
                self._server.hub.lingering.end(self._socket)
        except OSError as error:
            LOG.debug("connection %s: the refusal could not be sent: %s", self.name, error)
