"""Login: carries out a handshake: reads and writes for it, checks the credentials, finds the virtual host.

In good time, or not at all.

Between the connection's greenlet and the handshake's state table. Until the login is done it writes to the
socket itself, waiting, since nobody else does yet; it never lets a stranger hold more than one small frame,
nor keep the broker waiting for longer than ``login_timeout``.
"""
import contextlib
import time

from gevent import Timeout

from gomq_py.amqp.server import events
from gomq_py.amqp.server.handshake import (
    Closed, Handshake, HandshakeError, Limits, Login, Open, Send, close_frame,
)
from gomq_py.amqp.server.server_properties import server_properties
from gomq_py.amqp.wire.errors import ConnectionForced, NotAllowed
from gomq_py.amqp.wire.methods import ConnectionOpen
from gomq_py.auth import certificates
from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.policies.user_limits import CONNECTIONS
from gomq_py.broker.policies.vhost_limits import MAX_CONNECTIONS
from gomq_py.broker.verbs.access import may_enter, refusal
from gomq_py.hub.clients import SHUTDOWN
from gomq_py.observability.log import logger

LOG = logger("amqp")
READ_OCTETS = 16 * 1024


class Session:
    """What a login came to: ``user``, ``vhost``, ``limits``, and in ``rest`` the octets read behind it."""

    __slots__ = ("user", "vhost", "limits", "rest")

    def __init__(self, user, vhost, limits, rest):
        self.user = user
        self.vhost = vhost
        self.limits = limits
        self.rest = rest


# Seconds that a login may wait for its password to be checked: a minute behind others' failures
# (auth.attempts), and as long for the check. Hashes with a cost of 15 take 3 s each, and the row of those who
# wait for one has no end.
PAUSE_S = 120


class Patience:
    """``with Patience(seconds, error):`` raises ``error`` in this greenlet when the client has taken so long,
    up to PAUSE_S of the time ``paused()`` not counted.
    """

    def __init__(self, seconds, error, clock=time.monotonic):
        self._left_s = seconds
        self._pause_left_s = PAUSE_S
        self._error = error
        self._clock = clock
        self._timeout = None
        self._since_s = 0.0

    def __enter__(self):
        self._since_s = self._clock()
        self._timeout = Timeout.start_new(self._left_s, self._error)
        return self

    def __exit__(self, *_):
        self._timeout.close()
        self._timeout = None
        self._left_s = max(0.0, self._left_s - (self._clock() - self._since_s))

    @contextlib.contextmanager
    def paused(self):
        """What is done in here takes none of the client's time, until that comes to PAUSE_S."""
        if self._timeout is None:
            yield
            return
        self.__exit__()
        pause_s, began_s = self._pause_left_s, self._clock()
        self._left_s += pause_s
        self.__enter__()
        try:
            yield
        finally:
            self.__exit__()
            self._pause_left_s = max(0.0, pause_s - (self._clock() - began_s))
            self._left_s = max(0.0, self._left_s - self._pause_left_s)
            self.__enter__()


class LoginAttempt:
    """One client on its way in.

    ``name`` is the connection's; ``client_properties`` and ``capabilities`` are what the client said.
    """

    def __init__(self, server, socket, name, peer_host, peer_port=0):
        settings = server.settings
        self.name = name
        self.user = None
        self._server = server
        self._broker = server.broker
        self._clients = server.hub.clients
        self._socket = socket
        self._peer_host = peer_host
        self._peer_port = peer_port
        self._timeout_s = settings.login_timeout
        self._patience = Patience(self._timeout_s, HandshakeError(f"no login within {self._timeout_s} s"))
        self._vhost = None
        self._octets = 0
        offered = Limits(settings.channel_max, settings.frame_max, settings.heartbeat)
        self._handshake = Handshake(
            offered, server_properties(server.cluster_name), certified_name(socket, settings),
            settings.initial_frame_max,
        )

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
        """A Session, or None when there will be no connection; why is in the log then. May switch."""
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
            self._socket.sendall(step.octets)
        elif isinstance(step, Login):
            self._log_in(step)
            self._socket.sendall(handshake.logged_in())
        elif isinstance(step, Open):
            self._open(step.virtual_host)
            self._socket.sendall(handshake.opened())
            # Again: while the client took that, user or vhost may have been deleted, and others may have come in.
            self._vhost = self._open(step.virtual_host)
        return not isinstance(step, Closed)

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
        try:
            if self._clients.refusing_logins:
                raise LoginRefused("logins are refused at the moment")
            logins = self._broker.logins
            if login.password is None:
                self.user = logins.login_certified(login.username, self._peer_host)
            else:
                # Others' failures under this name or address may keep it waiting for a minute, which is not
                # the client's fault: a right password comes through, if late.
                with self._patience.paused():
                    self.user = logins.login(login.username, login.password, self._peer_host)
                self._check_not_stopping()
        except LoginRefused as error:
            self._clients.churn.logins_failed += 1
            raise HandshakeError(str(error), self._handshake.refused()) from error
        self._clients.churn.logins_succeeded += 1

    def _check_not_stopping(self):
        """After whatever may have switched: nobody comes in once the server takes leave. Raises HandshakeError."""
        if self._clients.is_closing:
            error = ConnectionForced(SHUTDOWN)
            raise HandshakeError("the broker stops", self._handshake.reply_to(error))

    def _open(self, name):
        """The vhost of this name. Raises HandshakeError where it is missing or not for this user."""
        vhost, most = self._broker.vhosts.get(name), self._server.settings.max_connections
        no_access = refusal(f"vhost '{name}'", self.user)
        if most and len(self._clients) >= most:
            text = f"connection refused: node connection limit ({most}) is reached"
        elif vhost is None:
            text = f"vhost {name} not found"
        elif not may_enter(self.user, name):
            text = no_access
        elif not self._has_room(vhost):
            limit = vhost.limits[MAX_CONNECTIONS]
            text = f"{no_access}: connection limit ({limit}) is reached"
        elif not self._user_has_room():
            limit = self.user.limits[CONNECTIONS]
            text = (
                f"connection refused for user '{self.user.name}': user connection limit ({limit}) is reached"
            )
        else:
            return vhost
        error = NotAllowed(text, ConnectionOpen.ID >> 16, ConnectionOpen.ID & 0xFFFF)
        raise HandshakeError(str(error), close_frame(error))

    def _has_room(self, vhost):
        """Whether the vhost's limit lets one more connection in."""
        limit = vhost.limits.get(MAX_CONNECTIONS)
        if limit is None:
            return True
        return self._clients.count_in_vhost(vhost) < limit

    def _user_has_room(self):
        """Whether the user's own limit lets one more connection in."""
        limit = self._broker.user_limits.limit(self.user, CONNECTIONS)
        return limit is None or self._clients.count_of_user(self.user.name) < limit

    def _try_to_send(self, octets):
        """A last word to somebody who may be gone already, which what is unread must not reset before it is
        heard.

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


def certified_name(socket, settings):
    """Whom a verified client certificate on this socket names, "" if nobody; None where no certificate was
    shown.
    """
    certificate = socket.getpeercert() if hasattr(socket, "getpeercert") else None
    if not certificate:
        return None
    kind, index = settings.ssl_cert_login_san_type, settings.ssl_cert_login_san_index
    return certificates.user_name(certificate, settings.ssl_cert_login_from, kind, index) or ""
