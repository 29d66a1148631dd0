"""Login: carries out a handshake, checks the credentials and finds the virtual host (broker.verbs.entering),
all within ``login_timeout``.

A LoginAttempt handles the octets of the connection until the client is logged in. Only the check of a costly
password takes a greenlet. Before its login a client can fill at most one small frame and, during such a
check, ``max_octets_before_login``.
"""
import time
from functools import lru_cache, partial

import gevent

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
from gomq_py.auth.certificates import certified_name
from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.login_deadline import LoginDeadline
from gomq_py.broker.verbs.entering import check_at_once, enter, lost_entry
from gomq_py.connections.connection import LAST_WORD_TIMEOUT_S
from gomq_py.connections.login import ClientLogin
from gomq_py.errors import Refused
from gomq_py.hub.clients import SHUTDOWN
from gomq_py.hub.loop_socket import is_plain
from gomq_py.net.stream import Lane
from gomq_py.observability.log import logger

LOG = logger("amqp")
# This door's name in admission, limits and lists of connections.
DOOR, LOCAL = "amqp", "local"


@lru_cache(8)
def greeting(cluster_name, offers_external):
    """Return connection.start of a broker in this cluster, as octets."""
    return start_frame(server_properties(cluster_name), offers_external)


class HandshakeLane(Lane):
    """Passes a connection's octets to its LoginAttempt."""

    __slots__ = ("attempt",)

    def __init__(self, attempt):
        self.attempt = attempt

    def process(self, start, end, now_ms):
        return self.attempt.process(start, end, now_ms)


class LoginAttempt(ClientLogin):
    """Logs in the client of one connection, and handles its octets until then. Success calls
    ``connection.let_in(user, vhost, handshake, has_rest)``, and passes the unused octets to the connection's
    FastLane. If the socket ends before that, the connection calls say_last_word().
    """

    __slots__ = ("user", "_input", "_handshake", "_timer", "_ends_at_s")

    def __init__(self, connection):
        settings = connection.server.settings
        super().__init__(connection, settings.login_timeout)
        self.user = None
        self._input = connection.hub.buffers.input_view
        if connection.local_user is not None:
            certified = connection.local_user.name
        else:
            socket = connection.socket
            certified = None if is_plain(socket) else certified_name(socket, settings)
        self._handshake = Handshake(
            limits_of(settings.channel_max, settings.frame_max, settings.heartbeat),
            greeting(self.server.cluster_name, certified is not None), certified, settings.initial_frame_max)
        self._timer = None
        self._ends_at_s = time.monotonic() + self.timeout_s

    def begin(self):
        """Start the timer that limits the login to ``login_timeout`` seconds."""
        self._start_timer(self.timeout_s)

    def end(self):
        """Stop the timer, after a successful or failed login."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def process(self, start, end, now_ms):
        """Handle the handshake's octets ``input[start:end]``. Returns the offset behind the used octets.
        Raises HandshakeError.
        """
        connection, handshake = self.connection, self._handshake
        handshake.feed(self._input[start:end])
        while True:
            step = handshake.next_step()
            if step is None:
                if connection.stream.received_octets > self.server.settings.max_octets_before_login:
                    self._check_octets()
                return end
            kind = type(step)
            if kind is Send:
                if step.octets:
                    connection.output.write(step.octets)
            elif kind is Login:
                if not self._log_in_at_once(step):
                    self._check_octets()
                    self._log_in_later(step)
                    return end - len(handshake.rest())
            elif kind is Closed:
                connection.stream.stop()
                return end
            else:
                return self._open(step.virtual_host, end, now_ms)
            if self.clients.is_closing or connection.hub.is_closed:
                self._check_not_stopping()

    def _check_octets(self):
        """Raise HandshakeError if the client has sent more than ``max_octets_before_login``."""
        octets = self.connection.stream.received_octets
        if octets > self.server.settings.max_octets_before_login:
            raise HandshakeError(
                f"{octets} bytes in handshake state {self._handshake.state} (max_octets_before_login)")

    @staticmethod
    def has_plenty():
        """Return False: reading must not be delayed, because the client waits for every answer."""
        return False

    # steps

    def _log_in_at_once(self, login):
        """Log in the client if its credentials can be checked without waiting; otherwise return False."""
        connection = self.connection
        if connection.local_user is not None and login.mechanism == EXTERNAL:
            self.user = connection.local_user
            self.clients.churn.logins_succeeded += 1
        else:
            self.user = check_at_once(
                self.broker.logins, self.clients, login.username, login.password, self.host)
            if self.user is None:
                return False
        self._check_not_stopping()
        self._logged_in(login)
        return True

    def _log_in_later(self, login):
        """Check the credentials in a greenlet. The client is not read meanwhile."""
        # It may wait for a password hash, an issuer's keys, or the delay after failed logins.
        self.end()
        hold = self.connection.stream.pause_reading("its password to be checked")
        greenlet = gevent.spawn(self._log_in, login, hold)
        greenlet.name = f"amqp {self.connection.peer}"
        if self.connection.admitted is not None:
            self.connection.admitted.end_login = partial(self._give_up, greenlet)

    def _log_in(self, login, hold):
        """Check the credentials, answer, then release ``hold``, so that the client is read. May switch."""
        left_s = max(0.0, self._ends_at_s - time.monotonic())
        deadline = LoginDeadline(left_s, HandshakeError(f"no login within {self.timeout_s} s"))
        stream = self.connection.stream
        try:
            with deadline:
                self._check(login, deadline)
            self._logged_in(login)
            self._start_timer(deadline.left_s)
        except Exception as error:
            stream.stop(error)
        finally:
            if self.connection.admitted is not None:
                self.connection.admitted.end_login = None
            hold.release()

    def _give_up(self, greenlet):
        """Kill the greenlet of a login whose socket was shut down."""
        greenlet.kill(block=False)
        self.connection.stream.stop()

    def _check(self, login, deadline):
        """Check the credentials. Raises HandshakeError. May switch."""
        try:
            self.user = self.checked(login.username, login.password, deadline, PROTOCOL)
            self._check_not_stopping()
        except LoginRefused as error:
            raise HandshakeError(str(error), self._handshake.refused()) from error
        except HandshakeError as error:
            self.tell("failure", login.username, PROTOCOL, str(error))
            raise

    def _logged_in(self, login):
        self.tell("success", login.username, PROTOCOL)
        self.connection.output.write(self._handshake.logged_in())

    def _open(self, name, end, now_ms):
        """Open the vhost, and pass the octets after connection.open to the FastLane. Raises HandshakeError.
        """
        connection, handshake = self.connection, self._handshake
        self._vhost(name)
        # Sent with the answers to the rest of the input: a client woken earlier would take the processor.
        connection.output.write(handshake.opened())
        # Again: the user or vhost may have been deleted meanwhile, and other clients may have come in.
        vhost = self._vhost(name)
        self._check_not_stopping()
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

    # time limit

    def _start_timer(self, seconds):
        # Not hub.timers: each login starts one, and `make bench` has a row for logins.
        self._timer = gevent.get_hub().loop.timer(seconds)
        self._timer.start(self._out_of_time)

    def _out_of_time(self):
        self.end()
        self.connection.stream.stop(HandshakeError(f"no login within {self.timeout_s} s"))

    # failure

    def say_last_word(self):
        """Log why the login failed, and send the client the reason. Returns True if it was sent. May switch.
        """
        connection, error = self.connection, None
        try:
            connection.stream.finish()
        except (HandshakeError, OSError) as why:
            error = why.with_traceback(None)  # its traceback leads back here
        reply = self._refusal(error)
        if reply:
            connection.output.write(reply)
        is_sent = connection.output.wait_drained(LAST_WORD_TIMEOUT_S)
        if reply and connection.output.error is not None:
            LOG.debug(
                "connection %s: the refusal could not be sent: %s", connection.name, connection.output.error)
        return is_sent and bool(reply)

    def _refusal(self, error):
        """Log why the login failed, and return the octets to send. ``error``: a HandshakeError, an OSError,
        or None if the client closed the socket.
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
    """connection.update-secret: verify the client's new OAuth token, and use it. Returns False if the
    connection must not be read until it is verified.

    For a user with a password, only update-secret-ok is sent, as by RabbitMQ.
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
