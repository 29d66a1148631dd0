"""Logs in the clients of all protocols, each within a time limit, and emits the events about logins.

The code of each protocol parses and answers the login; broker.verbs.entering decides. A greenlet is made only
to check a costly password.
"""
import time
from functools import partial

import gevent

from gomq_py.auth.certificates import certified_name
from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.login_deadline import LoginDeadline
from gomq_py.broker.signals.events import logged_in
from gomq_py.broker.verbs.entering import check_at_once, check_credentials
from gomq_py.hub.loop_socket import is_plain
from gomq_py.net.listener import login_host
from gomq_py.net.stream import Lane

# Time for a client to read the broker's last packet.
LAST_WORD_TIMEOUT_S = 5


class LoginFailed(Exception):
    """The login has failed. The text is for the log; ``reply``: bytes to send before the connection ends."""

    def __init__(self, text, reply=b""):
        super().__init__(text)
        self.reply = reply


class ClientLogin(Lane):
    """The login of one connection, within ``timeout_s``.

    Until the login ends, this object is the connection's Lane (parser). A subclass has process(), and:

        _check(login, deadline)   check the credentials; returns the User; raises LoginFailed; may switch
        _checked(user, login, left_s)
                                  go on with a login whose credentials are correct; the login may take
                                  ``left_s`` seconds more
        _refusal(error)           log why the login failed; return the bytes to send
    """

    __slots__ = ("connection", "server", "broker", "clients", "host", "timeout_s", "_timer", "_ends_at_s")

    def __init__(self, connection, timeout_s):
        self.connection = connection
        self.server = connection.server
        self.broker = connection.server.broker
        self.clients = connection.hub.clients
        self.host = login_host(connection.socket, connection.peer_host)
        self.timeout_s = timeout_s
        self._timer = None
        self._ends_at_s = time.monotonic() + timeout_s

    def begin(self):
        """Start the timer that limits the login to ``timeout_s``."""
        self._start_timer(self.timeout_s)

    def _start_timer(self, seconds):
        # Not hub.timers: each login starts one, and `make bench` has a row for logins.
        self._timer = gevent.get_hub().loop.timer(seconds)
        self._timer.start(self._out_of_time)

    def end(self):
        """Stop the timer, after a successful or failed login."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    @staticmethod
    def has_plenty():
        """Return False: reading must not be delayed, because the client waits for each answer."""
        return False

    def certified_name(self):
        """Return the user name in the client's certificate; "" if it has none; None without a certificate."""
        socket = self.connection.socket
        return None if is_plain(socket) else certified_name(socket, self.server.settings)

    # credentials

    def checked_at_once(self, username, password):
        """Check credentials without waiting. Return the User; None if a greenlet must check them."""
        return check_at_once(self.broker.logins, self.clients, username, password, self.host)

    def checked(self, username, password, deadline, protocol):
        """Check credentials; return the User. ``deadline``: a LoginDeadline. ``protocol``: the protocol's
        name in events. Raises LoginRefused. May switch greenlets.
        """
        try:
            return check_credentials(
                self.broker.logins, self.clients, username, password, self.host, deadline)
        except LoginRefused as error:
            self.tell("failure", username, protocol, str(error))
            raise

    def check_later(self, login):
        """Check the credentials in a greenlet, which then goes on with the login. Pauses reading."""
        # It may wait for a password hash, an issuer's keys, or the delay after failed logins.
        self.end()
        connection = self.connection
        hold = connection.stream.pause_reading("its password to be checked")
        greenlet = gevent.spawn(self._check_credentials, login, hold)
        greenlet.name = f"{connection.door} {connection.peer}"
        connection.admitted.end_login = partial(self._give_up, greenlet)

    def _check_credentials(self, login, hold):
        """Check the credentials, go on with the login, then release ``hold``, which paused reading. An error
        ends the stream. May switch greenlets.
        """
        connection = self.connection
        deadline = LoginDeadline(max(0.0, self._ends_at_s - time.monotonic()), self._too_late())
        try:
            with deadline:
                user = self._check(login, deadline)
            self._checked(user, login, deadline.left_s)
        except Exception as error:
            connection.stream.stop(error)
        finally:
            connection.admitted.end_login = None
            hold.release()

    def _give_up(self, greenlet):
        """Kill the greenlet of a login whose socket was shut down."""
        greenlet.kill(block=False)
        self.connection.stream.stop()

    def _check(self, login, deadline):
        raise NotImplementedError

    def _checked(self, user, login, left_s):
        raise NotImplementedError

    def tell(self, outcome, username, protocol, *error):
        """Emit a login's event: "success" or, unless the broker is stopping, "failure" with ``error``."""
        events, key = self.broker.events, f"user.authentication.{outcome}"
        if not events.is_heard(key) or error and self.clients.is_closing:
            return
        one = self.connection
        events.emit(
            key, logged_in, one.name, username, one.socket,
            (one.peer_host, one.peer_port), protocol, *error)

    # failure

    def _too_late(self):
        return LoginFailed(f"no login within {self.timeout_s} s")

    def _out_of_time(self):
        self.end()
        self.connection.stream.stop(self._too_late())

    def say_last_word(self):
        """Log why the login failed, and send the client the refusal. Return True if that was sent. May switch
        greenlets.
        """
        connection, error = self.connection, None
        try:
            connection.stream.finish()
        except (LoginFailed, OSError) as why:
            error = why.with_traceback(None)  # its traceback leads back here
        reply = self._refusal(error)
        if reply:
            connection.output.write(reply)
        is_sent = connection.output.wait_drained(LAST_WORD_TIMEOUT_S)
        if reply and connection.output.error is not None:
            connection.log.debug(
                "connection %s: the refusal could not be sent: %s", connection.name, connection.output.error)
        return is_sent and bool(reply)

    def _refusal(self, error):
        raise NotImplementedError
