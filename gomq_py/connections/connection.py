"""The base class of client connections of all protocols.

Who calls which methods, in a connection's life (caller > methods):

    listener > protocol's server > begin() > open_stream()
    login > enter(), watch()
    end of the stream > over() > _finish() > the callback given to when_gone()
    event loop's clients, alarms and heartbeats > block, unblock, check_heartbeat, force_close, abort, cut_off

A subclass for each protocol parses and writes. A connection has no greenlet, which would take more memory
than all the rest of an idle client. A greenlet is made at its end if the broker must wait for the client.
"""
import logging
import os
import socket as system_socket
import time
from functools import partial
from types import MappingProxyType
from typing import Any

import gevent

from gomq_py.broker.signals.events import connection_closed
from gomq_py.broker.verbs.token_life import EXPIRED, TokenLife
from gomq_py.net.listener import format_address, format_own, host_of
from gomq_py.net.output import Output
from gomq_py.net.stream import Stream

# Half of this lies between two looks at the socket of a client that an alarm holds.
ALARM_LOOK_S = 60
# Reason of an end without another known one.
BROKEN = "by a fault of the broker"


class ClientConnection:
    """The connection of a client, from its first byte to its last. ``why``: the reason of its end, for the
    log.

    ``local_user``: the user of a client in this process, which uses no port; otherwise None. A subclass has:

        log                              the protocol's logger
        LoginAttempt                     the protocol's ClientLogin
        goodbye                          the name of the protocol's last message from a client, for the log
        door, protocol                   names in lists of connections; limits use ``door``, too
        channels                         dict of the client's channels by number, shown in lists
        client_properties                what the client tells about itself, shown in lists
    """

    __slots__ = (
        "server", "hub", "admitted", "socket", "address", "name", "durability", "scheduler", "events",
        "state", "user", "vhost", "access", "limits", "mechanism", "login", "output", "stream", "lane",
        "slow_walk", "connected_at", "blocked_reason", "why", "_has_taken_leave", "_when_gone", "_alarm_hold",
        "token_life", "_silent_checks", "_octets_seen", "__weakref__",
    )

    channels: Any = MappingProxyType({})
    local_user = None

    def __init__(self, server, socket, address, admitted):
        self.server = server
        self.hub = server.hub
        self.admitted = admitted
        self.socket = socket
        self.address = address
        self.name = f"{format_address(address)} -> {format_own(socket.getsockname())}"
        self.durability = server.broker.durability
        self.scheduler = self.hub.scheduler
        self.events = server.broker.events
        self.user = self.vhost = self.access = self.limits = None
        self.mechanism = ""
        self.login = self.output = self.stream = self.lane = self.slow_walk = None
        self.connected_at = time.time()
        self.blocked_reason = None
        self.why = ""
        self._has_taken_leave = False
        self._when_gone = self._alarm_hold = self.token_life = None
        self._silent_checks = self._octets_seen = 0

    @property
    def peer(self):
        return format_address(self.address)

    @property
    def peer_host(self):
        """The client's host; behind a proxy, the host that the proxy announced."""
        return host_of(self.address)

    @property
    def peer_port(self):
        """The client's port; 0 for a unix socket."""
        return self.address[1] if isinstance(self.address, tuple) else 0

    def unkept(self):
        """Return two counts: messages sent that no queue had stored, and messages dropped instead of sent."""
        return 0, 0

    # for the protocol to implement

    log: Any
    LoginAttempt: Any
    door: str
    goodbye: str

    def force_close(self, reason):
        """End the connection for an operator or the broker: tell the client, and wait for its answer."""
        raise NotImplementedError

    def lend_nothing(self):
        """Stop deliveries before the connection ends: a message taken now would only count as delivered."""

    def tell_of_alarm(self):
        """Tell the client, if the protocol can, that an alarm blocks its publishes or has ended."""

    def _choose_lanes(self):
        """Choose anew the code that handles frames, because tracing or an alarm has begun or ended."""
        raise NotImplementedError

    def _stop(self):
        """Stop reading from the client."""
        raise NotImplementedError

    def _has_left(self):
        """Return True if the connection can end without a last message to the client."""
        return False

    def _say_last_word(self):
        """Send the client the protocol's last message. Return True if the client's close must be awaited. May
        switch greenlets.
        """
        raise NotImplementedError

    def _end(self):
        """Release everything that the connection holds, such as its consumers. A second call does nothing."""
        raise NotImplementedError

    # its life

    def begin(self):
        """Start the login and reading from the socket. An error releases everything that was acquired."""
        try:
            self.open_stream()
            login = self.login = self.LoginAttempt(self)
            login.begin()
            self.stream.begin(login, login, b"", self.over)
        except BaseException:
            if self.login is not None:
                self.login.end()
            if self.output is not None:
                self.output.close()
            self._gone()
            raise

    def open_stream(self):
        """Make the connection's Stream, which reads the socket, and its Output, which writes to it."""
        hub, buffers = self.hub, self.hub.buffers
        self.output = Output(self.socket, buffers, self.server.settings.max_unread_output)
        self.stream = Stream(self.socket, buffers, self.output, hub.coalescer)

    def enter(self, user, vhost, access, limits, mechanism):
        """Keep the results of the login, and add the connection to the list of clients. ``access``: the
        user's Access to the vhost. ``limits``: has heartbeat_s, frame_max and channel_max. ``mechanism``: how
        the client logged in, a name.
        """
        self.server.gate.logged_in(self.admitted)
        self.user, self.vhost, self.access, self.limits = user, vhost, access, limits
        self.mechanism = mechanism
        self.output.account = user.identity, vhost.name
        self.hub.clients.register(self)

    def watch(self):
        """Begin to check heartbeats, the expiry of the login's token, and whether the vhost is traced."""
        # Heartbeats checks twice in each interval given here, so every quarter of the heartbeat interval.
        self.hub.heartbeats.watch(self, self.limits.heartbeat_s / 2)
        if self.user.expires_at_s is not None:
            self.token_life = TokenLife(
                self.user, self.server.broker.logins, self.hub, partial(self.force_close, EXPIRED))
        self.vhost.watch_tracing(self, type(self)._choose_lanes)

    def has_time(self):
        """Return True if the next frame may be handled now. If not, reading pauses till the client's turn."""
        return self.slow_walk.has_time()

    def log_life(self, text, *arguments):
        """Log the connection's start or end: at level info, or at debug for clients in this process."""
        # Their owners log it themselves, and may connect again and again.
        self.log.log(logging.INFO if self.local_user is None else logging.DEBUG, text, *arguments)

    # its end

    def when_gone(self, callback, *arguments):
        """Set ``callback(*arguments)``, called when the connection has ended and the socket may be closed.
        Call this before all other methods.
        """
        self._when_gone = partial(callback, *arguments)

    def over(self):
        """Schedule the connection's end, because its stream has ended. Queues send it no more messages."""
        # Of thousands of broken connections, each would take the messages that an ended one requeued.
        self.lend_nothing()
        gevent.get_hub().loop.run_callback(self.hub.slow_turns.call, self._end_in_turn)

    def _end_in_turn(self):
        """End the connection: in the event loop, or in a greenlet if the broker must wait for the client."""
        if self.hub.is_closed:  # no client is told
            self.cut_off()
            self._gone()
        elif self._has_left():
            self._finish()
        else:
            gevent.spawn(self._finish).name = f"{self.door} {self.peer}"

    def _finish(self):
        """End the connection with a last message to the client. If that was sent, the client's close is
        awaited in the background. May switch greenlets, unless ``_has_left()``.
        """
        lingers = False
        try:
            lingers = self.finish()
        except Exception:
            self.log.exception("connection %s: fault while ending it", self.name)
        finally:
            if lingers:
                self.hub.lingering.end_later(self.socket, self._gone)
            else:
                self._gone()

    def finish(self):
        """Send the client the last message, and release everything. Return True if the client's close must be
        awaited. May switch greenlets.
        """
        try:
            return self._say_last_word()
        finally:
            try:
                self._end()
            finally:
                self.output.close()  # after a fault, too: another client gets the socket's descriptor

    def _gone(self):
        self.server.gate.leave(self.admitted)
        if self._when_gone is not None:
            self._when_gone()

    def abort(self, why):
        """Close the connection at once, without a message to the client, and log ``why``."""
        self.why = self.why or why
        self.log.warning("connection %s: %s", self.name, why)
        self.output.close()
        self._stop()

    def cut_off(self):
        """Read and write no more, and end an unfinished login, because the broker has stopped. The client
        gets no message. Its unacknowledged messages stay in their queues.
        """
        # before the output calls its waiters, which would have the stream read again
        self.stream.stop()
        self.output.close()
        self.hub.clients.forget(self)
        login, self.login = self.login, None
        if login is not None:
            login.end()

    def how_it_broke(self):
        """Return why the connection ended: the socket's error, or that the client closed the socket."""
        if self.output.error is not None:
            return socket_failed(self.output.error)
        return f"the client closed the socket without {self.goodbye}"

    def give_back(self):
        """Undo ``watch()`` and an alarm's pause, add byte counts to the vhost's totals, close the Output."""
        self.hub.heartbeats.forget(self)
        if self._alarm_hold is not None:
            self._alarm_hold.release()
        if self.token_life is not None:
            self.token_life.stop()
            self.token_life = None
        self.vhost.watch_tracing(self, None)
        self.vhost.totals.received_octets += self.stream.received_octets
        self.vhost.totals.sent_octets += self.output.sent_octets
        self.output.close()

    def forget(self, given_name, is_told=True):
        """Remove the connection from the list of clients, and log its end. With ``is_told``, also emit
        ``connection.closed``, and list the connection, under the client's ``given_name``, as ended.
        """
        why = self.why or BROKEN
        self.hub.clients.forget(self)
        if is_told:
            self.hub.clients.ended.connection(self, why, given_name)
            self.events.emit_for(self, "connection.closed", connection_closed, self)
        self.log_life("connection %s (%s@%s) closed: %s", self.name, self.user.name, self.vhost.name, why)

    # signals

    def is_silent(self, checks):
        """Return True if ``checks`` calls of is_silent() in a row found neither new bytes nor a pause."""
        if self.stream.received_octets != self._octets_seen or self.stream.paused:
            self._octets_seen = self.stream.received_octets
            self._silent_checks = 0
            return False
        self._silent_checks += 1
        return self._silent_checks >= checks

    def block(self, reason):
        """Record that an alarm blocks the client's next publish. ``reason``: see Alarms.reason."""
        self.blocked_reason = reason
        self._choose_lanes()

    def unblock(self):
        """Record that the alarm is over, and let a blocked client publish."""
        self.blocked_reason = None
        self._choose_lanes()
        if self._alarm_hold is not None:
            hold, self._alarm_hold = self._alarm_hold, None
            self.tell_of_alarm()
            hold.release()

    def pause_for_alarm(self):
        """Stop reading from the client until the alarm is over. Called when the client publishes."""
        # As in RabbitMQ, a client that only consumes is neither blocked nor told.
        if self._alarm_hold is None:
            self._alarm_hold = AlarmHold(self, self.blocked_reason)
            self.tell_of_alarm()

    @property
    def flow(self):
        """The connection's state in RabbitMQ's words. ``blocked`` by an alarm, ``blocking`` if an alarm would
        block the client's next publish, otherwise ``running``.
        """
        if self._alarm_hold is not None:
            return "blocked"
        return "running" if self.blocked_reason is None else "blocking"


class AlarmHold:
    """A pause in reading from ``connection`` because of an alarm, until ``release()``."""

    # Twice a minute the hub's heartbeats ask whether the socket has failed, which a stream that is not read
    # does not notice: otherwise a client that was reset, or answers no probes (``tcp_keepalive``), would keep
    # its messages and exclusive queues until the alarm ends. Octets that a client sent before an orderly
    # close are read when the alarm is over.
    def __init__(self, connection, reason):
        self._connection = connection
        self._hold = connection.stream.pause_reading(f"an alarm to end ({reason})")
        connection.hub.heartbeats.watch(self, ALARM_LOOK_S)

    def check_heartbeat(self):
        """End the connection if its socket has failed. The heartbeat timer calls this."""
        error = self._connection.socket.getsockopt(system_socket.SOL_SOCKET, system_socket.SO_ERROR)
        if error:
            self._connection.abort(f"the socket failed: {os.strerror(error)}")

    def release(self):
        """Let the connection be read again. A second call does nothing."""
        self._connection.hub.heartbeats.forget(self)
        self._hold.release()


def socket_failed(error):
    """Return a text that says why a connection ended: its socket failed with this OSError."""
    return f"the socket failed: {error.strerror or error}"
