"""Login: carries out a handshake, checks the credentials and finds the virtual host (broker.verbs.entering),
all within ``login_timeout``.

Before its login a client can fill at most one small frame and, during the check of a costly password,
``max_octets_before_login``.
"""
from functools import lru_cache

from gomq_py.amqp.server.events import PROTOCOL
from gomq_py.amqp.server.refusals import blamed
from gomq_py.amqp.server.handshake import (
    EXTERNAL, Closed, Handshake, HandshakeError, Login, Send, close_frame, limits_of, start_frame,
)
from gomq_py.amqp.server.lifecycle import HEADER, LEFT
from gomq_py.amqp.server.server_properties import server_properties
from gomq_py.amqp.wire.errors import AccessRefused, ConnectionForced, NotAllowed
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import ConnectionOpen, ConnectionUpdateSecret, ConnectionUpdateSecretOk
from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.verbs.entering import enter, lost_entry
from gomq_py.connections.login import ClientLogin, LoginFailed
from gomq_py.errors import Refused
from gomq_py.hub.clients import SHUTDOWN
from gomq_py.observability.log import logger

LOG = logger("amqp")
# This door's name in admission, limits and lists of connections.
DOOR, LOCAL = "amqp", "local"


@lru_cache(8)
def greeting(cluster_name, offers_external):
    """Return connection.start of a broker in this cluster, as bytes."""
    return start_frame(server_properties(cluster_name), offers_external)


class LoginAttempt(ClientLogin):
    """Logs in the client of one connection, and handles its bytes until the login ends. Success calls
    ``connection.let_in(user, vhost, handshake, has_rest)``, and passes the unused bytes to the connection's
    FastLane. If the socket ends before the login, the connection calls say_last_word().
    """

    __slots__ = ("user", "_input", "_handshake")

    def __init__(self, connection):
        settings = connection.server.settings
        super().__init__(connection, settings.login_timeout)
        self.user = None
        self._input = connection.hub.buffers.input_view
        local_user = connection.local_user
        certified = self.certified_name() if local_user is None else local_user.name
        self._handshake = Handshake(
            limits_of(settings.channel_max, settings.frame_max, settings.heartbeat),
            greeting(self.broker.cluster_name, certified is not None), certified, settings.initial_frame_max)

    def process(self, start, end, now_ms):
        """Handle the handshake's bytes ``input[start:end]``. Returns the offset after the used bytes. Raises
        HandshakeError.
        """
        connection, handshake = self.connection, self._handshake
        handshake.feed(self._input[start:end])
        while True:
            step = handshake.next_step()
            if step is None:
                self._check_octets()
                return end
            kind = type(step)
            if kind is Send:
                connection.output.write(step.octets)
            elif kind is Login:
                if not self._log_in_at_once(step):
                    self._check_octets()
                    self.check_later(step)
                    return end - len(handshake.rest())
            elif kind is Closed:
                connection.stream.stop()
                return end
            else:
                return self._open(step.virtual_host, end, now_ms)
            self._check_not_stopping()

    def _check_octets(self):
        """Raise HandshakeError if the client has sent more than ``max_octets_before_login``."""
        octets = self.connection.stream.received_octets
        if octets > self.server.settings.max_octets_before_login:
            raise HandshakeError(
                f"{octets} bytes in handshake state {self._handshake.state} (max_octets_before_login)")

    # steps

    def _log_in_at_once(self, login):
        """Log in the client if its credentials can be checked without waiting. Returns False if not."""
        connection = self.connection
        if connection.local_user is not None and login.mechanism == EXTERNAL:
            self.user = connection.local_user
            self.clients.churn.logins_succeeded += 1
        else:
            self.user = self.checked_at_once(login.username, login.password)
            if self.user is None:
                return False
        self._check_not_stopping()
        self._logged_in(login)
        return True

    def _check(self, login, deadline):
        """Check the credentials. Returns the User. Raises HandshakeError. May switch greenlets."""
        try:
            user = self.checked(login.username, login.password, deadline, PROTOCOL)
            self._check_not_stopping()
            return user
        except LoginRefused as error:
            raise HandshakeError(str(error), self._handshake.refused()) from error
        except LoginFailed as error:
            self.tell("failure", login.username, PROTOCOL, str(error))
            raise

    def _checked(self, user, login, left_s):
        self.user = user
        self._logged_in(login)
        self._start_timer(left_s)

    def _logged_in(self, login):
        self.tell("success", login.username, PROTOCOL)
        self.connection.output.write(self._handshake.logged_in())

    def _open(self, name, end, now_ms):
        """Open the vhost, and pass the bytes after connection.open to the FastLane. Returns the offset after
        the used bytes. Raises HandshakeError.
        """
        connection, handshake = self.connection, self._handshake
        vhost = self._vhost(name)
        self._check_not_stopping()
        # Sent with the answers to the rest of the input: a client woken earlier would take the processor.
        connection.output.write(handshake.opened())
        self.end()
        rest = handshake.rest()
        connection.let_in(self.user, vhost, handshake, bool(rest))
        if rest:
            return connection.lane.process(end - len(rest), end, now_ms)
        connection.scheduler.begin(now_ms)  # turns use the present time
        connection.scheduler.finish()
        return end

    def _check_not_stopping(self):
        if self.clients.is_closing or self.connection.hub.is_closed:
            error = ConnectionForced(SHUTDOWN)
            raise HandshakeError("the broker stops", self._handshake.reply_to(error))

    def _vhost(self, name):
        door, most = DOOR, self.server.settings.max_connections
        local_user = self.connection.local_user
        if local_user is not None:
            door, most = LOCAL, 0
        try:
            return enter(self.broker, self.clients, self.user, name, door, most)
        except Refused as refused:
            text = refused.text
            if local_user is not None and name in self.broker.vhosts:
                text = lost_entry(self.broker.users, self.user, name) or text
            error = NotAllowed(text, ConnectionOpen.ID >> 16, ConnectionOpen.ID & 0xFFFF)
            raise HandshakeError(str(error), close_frame(error)) from refused

    # failure

    def _refusal(self, error):
        """Log why the login failed, and return the bytes to send. ``error``: a LoginFailed, an OSError, or
        None if the client closed the socket.
        """
        handshake, name, host = self._handshake, self.connection.name, self.connection.peer_host
        strangers = self.server.strangers
        if isinstance(error, OSError):
            strangers.info(
                ("lost", host), "connection %s lost in handshake state %s: %s", name, handshake.state,
                error.strerror or error)
            return b""
        if error is None and handshake.state == LEFT:
            strangers.info(("closed", host), "connection %s closed by the client in handshake", name)
            return b""
        if error is None and handshake.state == HEADER and not self.connection.stream.received_octets:
            LOG.debug("connection %s: the client said nothing", name)  # a health check
            return b""
        if error is None:
            error = HandshakeError(f"the peer closed the socket in handshake state {handshake.state}")
        strangers.warning(
            ("refused", host, handshake.state), "connection %s refused: %s", name, error)
        return error.reply


def update_secret(connection, method):
    """connection.update-secret: verify and use the client's new OAuth token. Returns False to pause reading
    until the answer. A user with a password gets only update-secret-ok, as from RabbitMQ, without a pause.
    """
    name, answer = connection.user.name, method_frame(0, ConnectionUpdateSecretOk())

    def renewed():
        LOG.info("connection %s: user '%s' renewed its token", connection.name, name)
        connection.server.withdrawals.begin(connection.user)
        connection.output.write(answer)

    def refused(error):
        LOG.warning("connection %s: the token of user '%s' is not renewed: %s", connection.name, name, error)
        refusal = AccessRefused(
            f"the new token of user '{name}' was refused. For details see the broker logfile.")
        connection.fail(blamed(refusal.hard(), ConnectionUpdateSecret.ID))

    if connection.token_life is None:
        connection.output.write(answer)
        return True
    hold = connection.stream.pause_reading("its new token to be verified")
    connection.token_life.renew(method.new_secret, hold, renewed, refused)
    return False
