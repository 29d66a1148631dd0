"""Client connection: does what the connections of all doors have in common.

    listener > door > open_stream(), enter(), watch(); over() > _finish() > when_gone()
    hub's clients, alarms and heartbeats > block, unblock, check_heartbeat, force_close, abort, cut_off

A protocol's Connection adds the wire and the verbs. A client has no greenlet, which would take more memory
than all the rest of an idle client; one is made at the end if the broker must wait for the client. Never
parses and never writes: the protocol's Connection does.
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
from gomq_py.net.listener import format_address, format_own, host_of, telling_why
from gomq_py.net.output import Output
from gomq_py.net.stream import Stream

# Time for a client to read the broker's last word.
LAST_WORD_TIMEOUT_S = 5
# Half of this lies between two looks at the socket of a client that an alarm holds.
ALARM_LOOK_S = 60
# Reason of an end without another known one.
BROKEN = "by a fault of the broker"


class ClientConnection:
    """Serves a client from its first octet to its last. ``why``: the reason of its end, for the log.

    A subclass has the ``log`` of its door, the ``goodbye`` of its clients, and for lists of connections
    ``door``, ``protocol``, ``channels`` by number, ``client_properties`` and ``limits``. ``local_user``: the
    user of a client in this process; such a client uses no port and counts at none.
    """

    __slots__ = (
        "server", "hub", "admitted", "socket", "address", "peer", "name", "durability", "scheduler", "events",
        "state", "user", "vhost", "access", "limits", "mechanism", "output", "stream", "lane", "slow_walk",
        "connected_at", "blocked_reason", "why", "_has_taken_leave", "_when_gone", "_alarm_hold",
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
        self.peer = format_address(address)
        self.name = f"{self.peer} -> {format_own(socket.getsockname())}"
        self.durability = server.broker.durability
        self.scheduler = self.hub.scheduler
        self.events = server.broker.events
        self.user = self.vhost = self.access = self.limits = None
        self.mechanism = ""
        self.output = self.stream = self.lane = self.slow_walk = None
        self.connected_at = time.time()
        self.blocked_reason = None
        self.why = ""
        self._has_taken_leave = False
        self._when_gone = self._alarm_hold = self.token_life = None
        self._silent_checks = self._octets_seen = 0

    @property
    def peer_host(self):
        """The client's host; behind a proxy, the host that the proxy announced."""
        return host_of(self.address)

    @property
    def peer_port(self):
        """The client's port; 0 for a unix socket."""
        return self.address[1] if isinstance(self.address, tuple) else 0

    def unkept(self):
        """(number of sent messages that no queue held, number of messages dropped on the way)."""
        return 0, 0

    # for the protocol to implement

    log: Any
    door: str
    goodbye: str

    def force_close(self, reason):
        """End the connection for an operator or the broker: tell the client, and wait for it."""
        raise NotImplementedError

    def lend_nothing(self):
        """Take no message for delivery any more: a message taken now would count as delivered."""

    def tell_of_alarm(self):
        """Tell the client, if the protocol can, that its publishes are held or are held no more."""

    def _choose_lanes(self):
        """Choose lanes anew, because tracing or an alarm has begun or ended."""
        raise NotImplementedError

    def _stop(self):
        """Read the client's octets no more."""
        raise NotImplementedError

    def _has_left(self):
        """Whether the end needs no word to the client and no wait for it. Called in the loop."""
        return False

    def _say_last_word(self):
        """Tell the client the end. True if it has taken this: then await its own end. May switch."""
        raise NotImplementedError

    def _end(self):
        """Give back all that the connection holds. Safe to call twice."""
        raise NotImplementedError

    # its life

    def open_stream(self):
        """Make the stream and the output."""
        hub = self.hub
        self.output = Output(self.socket, hub.buffers, self.server.settings.max_unread_output)
        self.stream = Stream(self.socket, hub.buffers, self.output, hub.coalescer)

    def enter(self, user, vhost, access, limits, mechanism):
        """Enter the client, after its login, among the hub's clients, as this user's in this vhost."""
        self.server.gate.logged_in(self.admitted)
        self.user, self.vhost, self.access, self.limits = user, vhost, access, limits
        self.mechanism = mechanism
        self.output.account = user.identity, vhost.name
        self.hub.clients.register(self)

    def watch(self):
        """Begin to watch for silence, for the token's expiry and for tracing."""
        # Heartbeats checks twice in each interval given here, so every quarter of the heartbeat interval.
        self.hub.heartbeats.watch(self, self.limits.heartbeat_s / 2)
        if self.user.expires_at_s is not None:
            self.token_life = TokenLife(
                self.user, self.server.broker.logins, self.hub, partial(self.force_close, EXPIRED))
        self.vhost.watch_tracing(self, type(self)._choose_lanes)

    def has_time(self):
        """Whether the lane's walk may go on now; after False it goes on at its next turn."""
        return self.slow_walk.has_time()

    def log_life(self, text, *arguments):
        """Log the connection's beginning or end; only at level debug for clients of this process, whose
        owners log it themselves and may connect again and again.
        """
        self.log.log(logging.INFO if self.local_user is None else logging.DEBUG, text, *arguments)

    # its end

    def when_gone(self, callback, *arguments):
        """Have ``callback(*arguments)`` called when the client is gone and the socket may be closed. Use this
        before anything else happens to the connection.
        """
        self._when_gone = partial(callback, *arguments)

    def over(self):
        """Have the connection ended in its turn, since the stream has ended. Until then it takes no message:
        of thousands of connections lost together, each would take messages that the one before gave back.
        """
        self.lend_nothing()
        gevent.get_hub().loop.run_callback(self.hub.slow_turns.call, self._end_in_turn)

    def _end_in_turn(self):
        """End the connection in the loop, or in a greenlet if a client is to be waited for."""
        if self.hub.is_closed:  # no client is told
            self.cut_off()
            self._gone()
        elif self._has_left():
            self._finish()
        else:
            gevent.spawn(self._finish).name = f"{self.door} {self.peer}"

    def _finish(self):
        """Say the last word, and await the end of a client that has taken it. May switch, unless _has_left().
        """
        lingers = False
        try:
            with telling_why(self.door, self.address, self.server.strangers):
                lingers = self.finish()
        finally:
            if lingers:
                self.hub.lingering.end_later(self.socket, self._gone)
            else:
                self._gone()

    def finish(self):
        """Say the last word and give everything back. Returns whether the client took the word. May switch.
        """
        try:
            return self._say_last_word()
        finally:
            self._end()

    def _gone(self):
        self.server.gate.leave(self.admitted)
        if self._when_gone is not None:
            self._when_gone()

    def abort(self, why):
        """Drop the client without a word."""
        self.why = self.why or why
        self.log.warning("connection %s: %s", self.name, why)
        self.output.close()
        self._stop()

    def cut_off(self):
        """Read and write no more, because the hub is closed. Tell nobody; unacked messages stay in their
        queues.
        """
        # before the output calls its waiters, which would have the stream read again
        self.stream.stop()
        self.output.close()
        self.hub.clients.forget(self)

    def how_it_broke(self):
        """The reason of an end for which the connection was given no reason."""
        if self.output.error is not None:
            return socket_failed(self.output.error)
        return f"the client closed the socket without {self.goodbye}"

    def give_back(self):
        """End the watches that watch() began, and add the socket's octets to the vhost's totals."""
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
        """Leave the hub's clients; report the end, with ``given_name``, if the beginning was reported."""
        why = self.why or BROKEN
        self.hub.clients.forget(self)
        if is_told:
            self.hub.clients.ended.connection(self, why, given_name)
            self.events.emit_for(self.user.name, "connection.closed", connection_closed, self)
        self.log_life("connection %s (%s@%s) closed: %s", self.name, self.user.name, self.vhost.name, why)

    # signals

    def is_silent(self, checks):
        """Whether ``checks`` heartbeat checks in a row found no new octets, although the stream was read."""
        if self.stream.received_octets != self._octets_seen or self.stream.paused:
            self._octets_seen = self.stream.received_octets
            self._silent_checks = 0
            return False
        self._silent_checks += 1
        return self._silent_checks >= checks

    def block(self, reason):
        """Hold the next publish, because an alarm is on."""
        self.blocked_reason = reason
        self._choose_lanes()

    def unblock(self):
        """Release a held publisher: the alarm is over."""
        self.blocked_reason = None
        self._choose_lanes()
        if self._alarm_hold is not None:
            hold, self._alarm_hold = self._alarm_hold, None
            self.tell_of_alarm()
            hold.release()

    def pause_for_alarm(self):
        """Stop reading until the alarm is over. As in RabbitMQ, only a publish does this: a client that only
        consumes is neither held nor told.
        """
        if self._alarm_hold is None:
            self._alarm_hold = AlarmHold(self, self.blocked_reason)
            self.tell_of_alarm()

    @property
    def flow(self):
        """The state in RabbitMQ's words: ``blocked`` while an alarm holds it, ``blocking`` if an alarm would
        hold its next publish, otherwise ``running``.
        """
        if self._alarm_hold is not None:
            return "blocked"
        return "running" if self.blocked_reason is None else "blocking"


class AlarmHold:
    """Holds the stream of ``connection`` until release(), also if the connection ends.

    Twice a minute the hub's heartbeats ask whether the socket has failed, which a stream that is not read
    does not notice: otherwise a client that was reset, or answers no probes (``tcp_keepalive``), would keep
    its messages and exclusive queues until the alarm ends. Octets that a client sent before an orderly close
    are read when the alarm is over.
    """

    def __init__(self, connection, reason):
        self._connection = connection
        self._hold = connection.stream.pause_reading(f"an alarm to end ({reason})")
        connection.hub.heartbeats.watch(self, ALARM_LOOK_S)

    def check_heartbeat(self):
        """End the connection if its socket has failed. The hub's heartbeats call this."""
        error = self._connection.socket.getsockopt(system_socket.SOL_SOCKET, system_socket.SO_ERROR)
        if error:
            self._connection.abort(f"the socket failed: {os.strerror(error)}")

    def release(self):
        """Release the stream. A second call changes nothing."""
        self._connection.hub.heartbeats.forget(self)
        self._hold.release()


def socket_failed(error):
    """The text that gives this OSError as the reason of an end."""
    return f"the socket failed: {error.strerror or error}"
