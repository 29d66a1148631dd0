"""Client connection: what the connection of every client has, whichever door it comes through.

    listener > door > open_stream(), enter(), watch(); over() > _finish() > when_gone()
    hub's clients, alarms and heartbeats > block, unblock, check_heartbeat, force_close, abort, cut_off

Between net and the doors. A protocol's Connection brings the wire and the verbs; from here it has both halves
of its socket, its name, the hold of an alarm, the life of its token, and the way to its end. A client is
served without a greenlet, which would cost an idle one more memory than all the rest; one is taken at the end
where the last word has to be waited for. Never parses and never writes: what a client is told is its
protocol's.
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

# What a client has to read our last word.
LAST_WORD_TIMEOUT_S = 5
# Half of this lies between two looks at the socket of a client that an alarm holds.
ALARM_LOOK_S = 60
# Why a connection ended that nothing else is known of.
BROKEN = "by a fault of the broker"


class ClientConnection:
    """A client from its first octet to its last. ``why`` is the reason it ended, for the log.

    Of its class: the ``log`` of its door, what its clients say for ``goodbye``, and what lists of connections
    show: its ``door``, its ``protocol``, its ``channels`` by number, ``client_properties`` and ``limits``.
    ``local_user``: as whom a client of this process logs in; it came through no port, and counts for none.
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
        """The host of the client's end, as a proxy announced it where there is one."""
        return host_of(self.address)

    @property
    def peer_port(self):
        """Its port; 0 for a unix socket."""
        return self.address[1] if isinstance(self.address, tuple) else 0

    def unkept(self):
        """(messages that it was sent and no queue held, messages that were dropped on the way)."""
        return 0, 0

    # what a protocol brings

    log: Any
    door: str
    goodbye: str

    def force_close(self, reason):
        """An operator, or the broker, ends it: the client is told, and waited for."""
        raise NotImplementedError

    def lend_nothing(self):
        """From now on it takes no message, which would be counted as delivered."""

    def tell_of_alarm(self):
        """The client is held, or no more: a protocol that has words for it says so."""

    def _choose_lanes(self):
        """Tracing or an alarm has begun or ended: publishes go another way."""
        raise NotImplementedError

    def _stop(self):
        """Read no more."""
        raise NotImplementedError

    def _has_left(self):
        """In the loop, when it is its turn to end: whether nothing is to be said, or waited for."""
        return False

    def _say_last_word(self):
        """Whether the client has taken it, and its end is to be awaited. May switch."""
        raise NotImplementedError

    def _end(self):
        """Give everything back. Safe to call twice."""
        raise NotImplementedError

    # its life

    def open_stream(self):
        """What it reads with, and what it writes with."""
        hub = self.hub
        self.output = Output(self.socket, hub.buffers, self.server.settings.max_unread_output)
        self.stream = Stream(self.socket, hub.buffers, self.output, hub.coalescer)

    def enter(self, user, vhost, access, limits, mechanism):
        """Its login is done: it counts among the clients, as this user's in this vhost."""
        self.server.gate.logged_in(self.admitted)
        self.user, self.vhost, self.access, self.limits = user, vhost, access, limits
        self.mechanism = mechanism
        self.output.account = user.identity, vhost.name
        self.hub.clients.register(self)

    def watch(self):
        """It is served from now on, and hears of silence, of its token's end and of traces."""
        # Checked twice in each interval that is given here, and so every quarter of the heartbeat interval.
        self.hub.heartbeats.watch(self, self.limits.heartbeat_s / 2)
        if self.user.expires_at_s is not None:
            self.token_life = TokenLife(
                self.user, self.server.broker.logins, self.hub, partial(self.force_close, EXPIRED))
        self.vhost.watch_tracing(self, type(self)._choose_lanes)

    def has_time(self):
        """May the walk go on? If not it is its turn again later."""
        return self.slow_walk.has_time()

    def log_life(self, text, *arguments):
        """That it begins or ends. Whoever has connections of this process says itself what becomes of them,
        and may try again and again.
        """
        self.log.log(logging.INFO if self.local_user is None else logging.DEBUG, text, *arguments)

    # its end

    def when_gone(self, callback, *arguments):
        """Call ``callback(*arguments)`` when the client is gone and all is given back: the socket may be
        closed. To be said before anything else happens to it.
        """
        self._when_gone = partial(callback, *arguments)

    def over(self):
        """Nothing more is read of it, and nothing goes out to it while its end waits for its turn: of
        thousands that are lost together each would be lent, and have counted, what the one before it gave
        back.
        """
        self.lend_nothing()
        gevent.get_hub().loop.run_callback(self.hub.slow_turns.call, self._end_in_turn)

    def _end_in_turn(self):
        """In the loop: end at once where there is nobody to wait for, or in a greenlet."""
        if self.hub.is_closed:  # nobody is told
            self.cut_off()
            self._gone()
        elif self._has_left():
            self._finish()
        else:
            gevent.spawn(self._finish).name = f"{self.door} {self.peer}"

    def _finish(self):
        """Say the last word, and await the end of a client that has taken it. May switch, unless it has left.
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
        """Say the last word, and give everything back. Whether the client has taken it. May switch."""
        try:
            return self._say_last_word()
        finally:
            self._end()

    def _gone(self):
        self.server.gate.leave(self.admitted)
        if self._when_gone is not None:
            self._when_gone()

    def abort(self, why):
        """Drop the client without a word: it does not listen."""
        self.why = self.why or why
        self.log.warning("connection %s: %s", self.name, why)
        self.output.close()
        self._stop()

    def cut_off(self):
        """The hub is closed: from now on nothing is read or written, nobody is told, and queues keep what the
        connection held.
        """
        # before the output lets go of whoever waits for it, which would have it read again
        self.stream.stop()
        self.output.close()
        self.hub.clients.forget(self)

    def how_it_broke(self):
        """The reason of an end that nobody has given one for."""
        if self.output.error is not None:
            return socket_failed(self.output.error)
        return f"the client closed the socket without {self.goodbye}"

    def give_back(self):
        """Nothing watches it any more, and its vhost counts what went over the socket."""
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
        """Everything has been given back: it counts no more. Whoever asks why finds it by the name that its
        client gave it, if its beginning was told.
        """
        why = self.why or BROKEN
        self.hub.clients.forget(self)
        if is_told:
            self.hub.clients.ended.connection(self, why, given_name)
            self.events.emit_for(self.user.name, "connection.closed", connection_closed, self)
        self.log_life("connection %s (%s@%s) closed: %s", self.name, self.user.name, self.vhost.name, why)

    # signals

    def is_silent(self, checks):
        """Of the checks of its heartbeat: nothing has come in so many of them, though it was read."""
        if self.stream.received_octets != self._octets_seen or self.stream.paused:
            self._octets_seen = self.stream.received_octets
            self._silent_checks = 0
            return False
        self._silent_checks += 1
        return self._silent_checks >= checks

    def block(self, reason):
        """An alarm is on: the next publish is to be held."""
        self.blocked_reason = reason
        self._choose_lanes()

    def unblock(self):
        """The alarm is over."""
        self.blocked_reason = None
        self._choose_lanes()
        if self._alarm_hold is not None:
            hold, self._alarm_hold = self._alarm_hold, None
            self.tell_of_alarm()
            hold.release()

    def hold_publishing(self):
        """A publish came while an alarm is on: do not read on until the alarm is over.

        As in RabbitMQ, the first publish brings this about: a client that only consumes is neither held nor
        told.
        """
        if self._alarm_hold is None:
            self._alarm_hold = AlarmHold(self, self.blocked_reason)
            self.tell_of_alarm()

    @property
    def flow(self):
        """What an alarm does to the connection, in RabbitMQ's words: ``blocked`` if it is held, ``blocking``
        if its next publish would be, else ``running``.
        """
        if self._alarm_hold is not None:
            return "blocked"
        return "running" if self.blocked_reason is None else "blocking"


class AlarmHold:
    """Holds the stream of ``connection`` until release(), also if the connection ends.

    The hub's heartbeats look twice a minute whether the system has given up the socket: nobody who does not
    read hears of it, and the messages and exclusive queues of a client that was reset, or answers no probes
    (``tcp_keepalive``), would stay until the alarm ends. What a client sent before it closed its side in
    order is read when the alarm is over.
    """

    def __init__(self, connection, reason):
        self._connection = connection
        self._hold = connection.stream.hold(f"an alarm to end ({reason})")
        connection.hub.heartbeats.watch(self, ALARM_LOOK_S)

    def check_heartbeat(self):
        """Of the hub's heartbeats: end a connection whose socket has failed."""
        error = self._connection.socket.getsockopt(system_socket.SOL_SOCKET, system_socket.SO_ERROR)
        if error:
            self._connection.abort(f"the socket failed: {os.strerror(error)}")

    def release(self):
        """Hold no more. A second call changes nothing."""
        self._connection.hub.heartbeats.forget(self)
        self._hold.release()


def socket_failed(error):
    """The reason of an end by this OSError."""
    return f"the socket failed: {error.strerror or error}"
