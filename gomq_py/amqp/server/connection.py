"""Connection: serves one client: its socket, its handshake, its channels and its end.

After the login only this module decides which frame tells the client of an error.

    socket > net.Stream > fast lane > slow_frame() > channel > handlers
    output < replies, confirms, deliveries

Greenlets send only a connection's last frames; all other code here runs in the event loop and must not switch
greenlets. No frame is parsed twice, and every wait for the peer has a time limit.
"""
import logging
from functools import partial
from types import MappingProxyType
from typing import Any

from gevent.event import Event

from gomq_py.amqp.server import events
from gomq_py.amqp.server.channel import Channel
from gomq_py.amqp.server.consume import ANY_SIZE
from gomq_py.amqp.server.fast_lane import FastLane
from gomq_py.amqp.server.handshake import close_frame
from gomq_py.amqp.server.lifecycle import (
    CLOSING, CROSSED, ENDED, FAILED, HANDSHAKE, OF_CHANNEL, OF_CONNECTION, OPEN, OPENED, REOPENED, STOPPED,
    moved,
)
from gomq_py.amqp.server.login import DOOR, LOCAL, LoginAttempt, update_secret
from gomq_py.amqp.server.publish import UNREAD, body_begins, body_ends, publish_later
from gomq_py.amqp.server.refusals import (
    as_amqp, blamed, check_frame, described_frame, method_on_channel_0,
)
from gomq_py.amqp.server.topology import REPLY_TO
from gomq_py.amqp.wire.errors import (
    AMQPError, ChannelError, ConnectionForced, FrameError, InternalError, NotAllowed, UnexpectedFrame,
)
from gomq_py.amqp.wire.frames import (
    FRAME_BODY, FRAME_HEARTBEAT, FRAME_METHOD, HEADER_OVERHEAD, HEARTBEAT_FRAME, method_frame,
)
from gomq_py.amqp.wire.methods import (
    ChannelClose, ChannelCloseOk, ChannelOpen, ConnectionBlocked, ConnectionClose, ConnectionCloseOk,
    ConnectionUnblocked, ConnectionUpdateSecret, decode_method,
)
from gomq_py.broker.policies.limits import MAX_CHANNELS
from gomq_py.broker.signals.events import connection_created
from gomq_py.broker.verbs.publishing import remembered_route
from gomq_py.connections.connection import ClientConnection, socket_failed
from gomq_py.connections.login import LAST_WORD_TIMEOUT_S
from gomq_py.content.fields import decode_table
from gomq_py.errors import Refused
from gomq_py.hub.clients import SHUTDOWN
from gomq_py.hub.turns import SlowWalk
from gomq_py.observability.log import logger

LOG = logger("amqp")

# How long a client has to agree to our connection.close before the socket is closed: RabbitMQ's time.
CLOSE_TIMEOUT_S = 30
# Logged characters of the name that a client gives its connection.
GIVEN_NAME_MAX = 256
# With so many unacked messages a consumer has work left before its acks are read: more than twice what the
# fastest client needs.
PLENTY = 32
# The client's properties until it sends them.
NOTHING = MappingProxyType({})
# Quarters of the heartbeat interval without an octet after which a client counts as dead: at least two and a
# half intervals. RabbitMQ waits for two to three; a busy machine makes clients' heartbeats late.
SILENT_CHECKS = 10
# Quarters between two heartbeats: as from RabbitMQ, clients see an octet after half an interval. Some (Java's
# on Netty) read with a timeout of one interval.
HEARTBEAT_CHECKS = 2


class Connection(ClientConnection):
    """One connected AMQP client. ``takes``: True from the client's first basic.consume or basic.get on."""

    # With a ``__dict__`` where tests replace a method.
    __slots__ = (
        "local_user", "door", "channels", "client_properties", "capabilities", "default_prefetch",
        "takes", "_answering", "_body", "_timers", "_octets_sent", "_checks_to_heartbeat", "__dict__",
    )

    log = LOG
    LoginAttempt = LoginAttempt
    protocol = "AMQP 0-9-1"  # the protocol's name in lists of connections
    goodbye = "connection.close"

    def __init__(self, server, socket, address, admitted, local_user=None):
        super().__init__(server, socket, address, admitted)
        self.state = HANDSHAKE
        self.local_user = local_user
        self.door = DOOR if local_user is None else LOCAL
        self.default_prefetch = server.settings.default_consumer_prefetch
        self.channels = {}
        self.client_properties = self.capabilities = NOTHING
        self.takes = False
        # channels that must answer, and be released, before connection.close-ok
        self._answering: Any = ()
        self._body = None
        self._timers: tuple = ()
        self._octets_sent = self._checks_to_heartbeat = 0

    # its login

    def let_in(self, user, vhost, handshake, has_rest):
        """Serve the client after its login. ``has_rest``: bytes after connection.open were read already."""
        self.client_properties, self.capabilities = handshake.client_properties, handshake.capabilities
        self.login = None
        moved(self, OF_CONNECTION, OPENED)
        self.enter(
            user, vhost, self.server.access_of(user, vhost.name), handshake.limits, handshake.mechanism)
        self.watch()
        self.events.emit_for(self, "connection.created", connection_created, self, events.PROTOCOL)
        name = self.client_properties.get("connection_name")
        given = f" as {name[:GIVEN_NAME_MAX]!r}" if isinstance(name, str) and name else ""
        self.log_life("connection %s: user '%s' opened vhost '%s'%s", self.name, user.name, vhost.name, given)
        self.stream.go_on_with(self.make_lane() if has_rest else None, self)

    def lend_nothing(self):
        """Stop all deliveries, because messages taken now would never be sent."""
        # Messages taken now would count as delivered, but never be sent.
        for channel in self.channels.values():
            channel.lend_nothing()

    def publishers(self):
        """Return a list of the connection's channels. Each channel counts its own publishes."""
        return list(self.channels.values())

    @property
    def properties_max(self):
        """Most bytes of properties that fit into a header frame to this client; ANY_SIZE: no limit."""
        # As in RabbitMQ, a client that accepts the server's largest frames has no limit: it can still consume
        # a message to which dead-lettering has added many headers.
        if self.limits.frame_max >= self.server.settings.frame_max:
            return ANY_SIZE
        return self.limits.frame_max - HEADER_OVERHEAD

    def _has_left(self):
        return not self.output.pending_octets() and self.stream.error is None

    def _say_last_word(self):
        if self.login is not None:
            return self.login.say_last_word()
        try:
            self.stream.finish()
            self.why = self.why or self.how_it_broke()
        except FrameError as error:
            # The client's stream is malformed: send the error and do not wait for an answer.
            said = Event()
            self.fail(error, said=said.set)
            said.wait(LAST_WORD_TIMEOUT_S)
            self._has_taken_leave = True
        except OSError as error:
            self.why = self.why or socket_failed(error)
        return self.output.wait_drained(LAST_WORD_TIMEOUT_S) and self._has_taken_leave

    def _end(self):
        if self.state == HANDSHAKE:
            self.cut_off()
        if not moved(self, OF_CONNECTION, ENDED):
            return
        self._body = None
        if self._answering:
            self._answering.clear()  # the client cannot get the answers
        for timer in self._timers:
            timer.kill(block=False)
        self._timers = ()
        self.give_back()
        self._release(self._ended, self.hub.endings.give_back)

    def _ended(self):
        self.lane = None  # the lane refers to the connection
        self.forget(self.client_properties.get("connection_name"))

    def _release(self, then, give_back, answering=()):
        """End all channels and delete the connection's exclusive queues, then call ``then()``. Channels in
        ``answering`` still have answers to send, and are only released. ``give_back``: hub.endings.Endings'.
        """
        if not self.channels:  # then there are usually no queues either, and nothing takes slices
            try:
                self.events.on_behalf_of(self, self.vhost.release_owner, self)
            finally:
                then()
            return
        self.lend_nothing()  # messages given back by one channel must not be delivered on another
        channels = list(self.channels.values())
        self.channels.clear()
        channels.reverse()
        give_back(self._ends_of(channels, answering), then)

    def _ends_of(self, channels, answering):
        """Pop ``channels``, and yield functions that end them, or only release those in ``answering``."""
        # So a channel's memory is freed as soon as it has ended.
        while channels:
            channel = channels.pop()
            yield from channel.ends(channel.release if channel in answering else channel.end)
        yield partial(self.events.on_behalf_of, self, self.vhost.release_owner, self)

    # the lane's handler

    def make_lane(self):
        """Create the connection's FastLane, when the client first sends something after its login. Idle
        clients need none, which saves memory.
        """
        hub = self.hub
        self.output.on_overflow = self._unread
        self.slow_walk = SlowWalk(self.stream, hub.slow_turns)
        self.lane = FastLane(
            self, hub.buffers, self.channels, self.limits.frame_max, self.scheduler,
            self.server.settings.max_message_size, self.server.tables.safe_octets)
        return self.lane

    def slow_frame(self, kind, channel_id, payload):
        """Handle a frame for the FastLane. Returns False if the FastLane must stop. Never raises."""
        return self._handled(kind, channel_id, self._frame, kind, channel_id, payload) and (
            self.slow_walk.has_time())

    def body_begins(self, channel_id, size, start, end):
        """Begin to receive a body frame of ``size`` bytes, of which ``input[start:end]`` has arrived. Returns
        True if the stream must read the rest into the message's buffer, and then call body_ends(). Returns
        False if the FastLane must wait for the complete frame.
        """
        channel = self.channels.get(channel_id)
        if self.state != OPEN or channel is None or not channel.is_open():
            return False
        gathered = body_begins(channel, size)
        if gathered is None:
            return False
        gathered.add(self.hub.buffers.input_view[start:end])
        self._body = channel, gathered, size
        self.stream.read_into(gathered, size - (end - start))
        return True

    def body_ends(self):
        """Handle the frame begun by body_begins(). Returns False if the FastLane must stop."""
        (channel, *body), self._body = self._body, None
        return self._handled(FRAME_BODY, channel.id, self._body_frame, channel, *body) and (
            self.slow_walk.has_time())

    def _body_frame(self, channel, gathered, size):
        try:
            return self.state != OPEN or not channel.is_open() or body_ends(channel, gathered, size)
        except (AMQPError, Refused) as error:
            raise blamed(as_amqp(error), channel.method_id)

    def _frame(self, kind, channel_id, payload):
        if self.state == CLOSING:
            return self._frame_while_closing(kind, channel_id, payload)
        if self._answering:
            return True  # the client has closed: its other frames are dropped
        if channel_id == 0:
            return self._connection_frame(kind, payload)
        return self._channel_frame(kind, channel_id, payload)

    def _handled(self, kind, channel_id, handle, *arguments):
        try:
            return handle(*arguments)
        except (AMQPError, Refused) as error:
            self._refuse(channel_id, as_amqp(error))
        except Exception:
            LOG.exception(
                "connection %s: fault while handling a type %d frame on channel %d", self.name, kind,
                channel_id,
            )
            self._refuse(channel_id, InternalError("Unexpected error, please report"))
        return not self.stream.paused

    def route(self, exchange, routing_key, entry=b""):
        """Return a Route that the FastLane may cache for this exchange and routing key, or None. ``entry``:
        the encoded header on which the route depends, or empty.
        """
        try:
            name, key = exchange.decode(), routing_key.decode()
        except UnicodeDecodeError:
            return None
        if not name and key.startswith(REPLY_TO):
            return None
        if self.slow_walk.is_over():
            return None  # looking for routes has used the read's time: the slow lane ends the walk
        headers = decode_table(len(entry).to_bytes(4, "big") + entry)[0] if entry else None
        return remembered_route(self.access, self.vhost, name, key, headers, tells_delayed=True)

    def outruns(self, queues):
        """Slow down reading, because the client publishes faster than the consumers of ``queues`` consume."""
        # Has no effect on a client that also consumes, because reading less would delay its acks.
        if not self.takes:
            self.hub.backpressure.pause_reading(self.stream, queues)

    def has_plenty(self):
        """Return True if reading this client can be delayed a little without harm: no channel is in confirm
        mode, and some channel has at least PLENTY unacked messages.
        """
        channels = self.channels.values()
        return (
            any(channel.unacked.count >= PLENTY for channel in channels)
            and not any(channel.confirming for channel in channels)
        )

    def _connection_frame(self, kind, payload):
        check_frame(kind, payload)
        if kind == FRAME_HEARTBEAT:
            return True
        if kind != FRAME_METHOD:
            raise UnexpectedFrame(described_frame(kind, payload))
        method = method_on_channel_0(payload)
        handler = CONNECTION_HANDLERS.get(type(method))
        if handler is None:
            raise blamed(ChannelError("unexpected method in connection state running"), method.ID)
        return handler(self, method)

    def _channel_frame(self, kind, channel_id, payload):
        check_frame(kind, payload)
        if kind == FRAME_HEARTBEAT:
            raise UnexpectedFrame(described_frame(kind, payload))
        channel = self.channels.get(channel_id)
        if channel is None:
            return self._open_channel(kind, channel_id, payload)
        if channel.is_closing():
            return self._frame_for_closing_channel(channel, kind, payload)
        try:
            if kind == FRAME_METHOD:
                channel.method(payload)
                return not self.stream.paused
            return channel.content_frame(kind, payload)
        except (AMQPError, Refused) as error:
            raise blamed(as_amqp(error), channel.method_id)

    def _open_channel(self, kind, channel_id, payload):
        if kind != FRAME_METHOD:
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        method = decode_method(payload)
        limit = self.limits.channel_max
        if limit and len(self.channels) >= limit:
            raise NotAllowed(
                f"number of channels opened ({len(self.channels)}) has reached the negotiated channel_max "
                f"({limit})"
            )
        limit = self.server.broker.user_limits.limit(self.user, MAX_CHANNELS)  # of all their connections
        if (
            limit is not None
            and sum(len(one.channels) for one in self.hub.clients.of_user(self.user.identity)) >= limit
        ):
            raise NotAllowed(
                f"number of channels opened for user '{self.user.name}' has reached the maximum allowed user "
                f"limit of ({limit})"
            )
        if not isinstance(method, ChannelOpen):
            raise blamed(ChannelError("expected 'channel.open'"), method.ID)
        channel = self.channels[channel_id] = Channel(self, channel_id)
        self.events.emit_for(self, "channel.created", events.channel_created, channel)
        return True

    def _frame_for_closing_channel(self, channel, kind, payload):
        """Handle a frame of a channel that awaits close-ok. Drops all but open, close and close-ok."""
        # The client has sent them before it read channel.close.
        method_id = int.from_bytes(payload[:4], "big") if kind == FRAME_METHOD else 0
        if method_id == ChannelCloseOk.ID:
            self.forget_channel(channel)
        elif method_id == ChannelClose.ID:
            # Both sides closed at the same time. Most clients still agree to our close; others may open the
            # channel again at once.
            moved(channel, OF_CHANNEL, CROSSED)
            channel.reply(ChannelCloseOk())
        elif method_id == ChannelOpen.ID:
            if moved(channel, OF_CHANNEL, REOPENED):
                self.forget_channel(channel)
                return self._open_channel(kind, channel.id, payload)
            raise blamed(ChannelError("second 'channel.open' seen"), method_id)
        return True

    def _frame_while_closing(self, kind, channel_id, payload):
        method_id = int.from_bytes(payload[:4], "big") if kind == FRAME_METHOD and channel_id == 0 else 0
        if method_id == ConnectionClose.ID:
            self.output.write(method_frame(0, ConnectionCloseOk()))
        elif method_id != ConnectionCloseOk.ID:
            return True
        return self._take_leave()

    # for channels

    def forget_channel(self, channel):
        """End ``channel``, and free its number for another channel."""
        channel.end()
        if self.channels.get(channel.id) is channel:
            del self.channels[channel.id]
        if self._answering:
            self._answered(channel)

    publish_later = staticmethod(publish_later)  # the fast lane calls it

    # ends

    def fail(self, error, level=logging.WARNING, said=None):
        """Close the connection with ``error``, logged at ``level``. After the channels have ended, sends
        connection.close unless it is closing already, and calls ``said()``. CLOSE_TIMEOUT_S is for close-ok.
        """
        said = said or (lambda: None)
        if not moved(self, OF_CONNECTION, FAILED):
            said()
            return
        self.why = self.why or str(error)
        LOG.log(level, "connection %s: closing with %s", self.name, error)
        # The client's agreement must be read, whatever reading waits for.
        self.stream.release_all()

        def released():
            self.output.write(close_frame(error))
            said()

        self._release(released, self.hub.endings.give_back_few)
        self._timers = (*self._timers, self.hub.call_later(CLOSE_TIMEOUT_S, self._stop))

    def force_close(self, reason):
        """Close the connection with CONNECTION_FORCED, because of an operator or the broker's stop."""
        # A stop is no fault, and each connection logs its end anyway.
        self.fail(ConnectionForced(reason), logging.DEBUG if reason == SHUTDOWN else logging.WARNING)

    def fail_channel(self, channel, error):
        """Close ``channel`` with an AMQPError or a Refused that no frame of the client has caused."""
        self._refuse(channel.id, as_amqp(error))

    def failed_later(self, channel, method_id, error):
        """Close the channel or connection with ``error``, raised by a later slice of method ``method_id``."""
        if not isinstance(error, (AMQPError, Refused)):
            LOG.error(
                "connection %s: fault in what a client asked for on channel %d", self.name, channel.id,
                exc_info=error,
            )
            self.fail(blamed(InternalError("Unexpected error, please report"), method_id))
        elif channel.is_open():
            self._refuse(channel.id, blamed(as_amqp(error), method_id))

    def _refuse(self, channel_id, error):
        """Send ``error`` to the client as channel.close or connection.close."""
        channel = self.channels.get(channel_id)
        if error.closes_connection or channel is None:
            self.fail(error)
            return
        self.server.log_channel_error(self.name, channel_id, error)
        self.hub.clients.ended.channel(self, channel_id, error)
        channel.fail(error)

    def _stop(self):
        if moved(self, OF_CONNECTION, STOPPED):
            self.stream.stop()

    def _close(self, method):
        """connection.close: delete the exclusive queues, and send close-ok after all other answers."""
        # If answers are outstanding, the client is still read and its frames are dropped: so a lost
        # connection is noticed even if the disk hangs.
        self.why = f"by the client: {method.reply_code} {method.reply_text}"
        hold = self.stream.pause_reading("its channels to end")
        for channel in self.channels.values():
            channel.send_confirms()  # confirms of what this read has published
        answering = [channel for channel in self.channels.values() if channel.is_answering()]
        self._answering = {self, *answering}

        def released():
            for channel in answering:
                channel.when_answered(partial(self.forget_channel, channel))
            self._answered(self)
            hold.release()

        self._release(released, self.hub.endings.give_back_few, self._answering)
        return bool(self._answering) and not self.stream.paused

    def _answered(self, one):
        """Record that ``one``, a channel or self, has sent its answers. After the last, send close-ok."""
        self._answering.discard(one)
        if not self._answering:
            self.output.write(method_frame(0, ConnectionCloseOk()))
            self._take_leave()

    def _take_leave(self):
        """Stop the connection after close-ok. Returns False, which stops the FastLane."""
        self._has_taken_leave = True
        self._stop()
        return False

    def _unread(self):
        """Stop reading from the client, because the client does not read its answers. The connection is
        closed if they are unread after ``unread_timeout``.
        """
        hold = self.stream.pause_reading(UNREAD)
        patience_s = self.server.settings.unread_timeout
        timer = self.hub.call_later(
            patience_s, self.abort, f"the client has not read its answers for {patience_s} s"
        )
        self._timers = (*self._timers, timer)

        def drained():
            timer.kill(block=False)
            self._timers = tuple([one for one in self._timers if one is not timer])
            hold.release()

        self.output.call_when_drained(drained)

    # signals

    def check_heartbeat(self):
        """Abort the connection if the client was silent too long. Sends a heartbeat if the broker was silent.
        Must be called four times per heartbeat interval.
        """
        # The broker sends one after half an interval without output.
        if self.is_silent(SILENT_CHECKS):
            self.abort(f"missed heartbeats from the client, timeout {self.limits.heartbeat_s} s")
            return
        if self.output.sent_octets != self._octets_sent:
            self._octets_sent = self.output.sent_octets
            self._checks_to_heartbeat = HEARTBEAT_CHECKS - 1  # octets may have left since the last check
            return
        self._checks_to_heartbeat -= 1
        if self._checks_to_heartbeat <= 0 and not self.output.blocked:
            self.output.write(HEARTBEAT_FRAME)
            self._octets_sent = self.output.sent_octets
            self._checks_to_heartbeat = HEARTBEAT_CHECKS

    def tell_of_alarm(self):
        """Send connection.blocked or, after the alarm, connection.unblocked, if the client supports them."""
        if self.capabilities.get("connection.blocked"):
            if self.blocked_reason is not None:
                self.output.write(method_frame(0, ConnectionBlocked(reason=self.blocked_reason)))
            elif self.state == OPEN:
                self.output.write(method_frame(0, ConnectionUnblocked()))

    def _choose_lanes(self):
        for channel in self.channels.values():
            channel.choose_lane()


CONNECTION_HANDLERS = {
    ConnectionClose: Connection._close,
    ConnectionUpdateSecret: update_secret,
}
