"""Connection: one client: its socket, handshake, channels and end.

The only place of the AMQP door that turns errors into frames.

    socket > net.Stream > fast lane > slow_frame() > channel > handlers
    output < replies, confirms, deliveries, which broker greenlets and the hub's loop call for

Between net and the channels. A greenlet may say the last word; everything else happens in the hub and must
not switch. Never parses a frame twice and never waits for the peer without a limit of time.
"""
import logging
import time
from functools import partial
from types import MappingProxyType
from typing import Any

from gevent.event import Event

from gomq_py.amqp.server import events
from gomq_py.amqp.server.channel import Channel
from gomq_py.amqp.server.consume import ANY_SIZE
from gomq_py.amqp.server.fast_lane import FastLane
from gomq_py.amqp.server.frame_errors import blamed, check_frame, described_frame, method_on_channel_0
from gomq_py.amqp.server.handshake import HandshakeError, close_frame
from gomq_py.amqp.server.lifecycle import (
    CLOSING, CROSSED, ENDED, FAILED, HANDSHAKE, OF_CHANNEL, OF_CONNECTION, OPEN, OPENED, REOPENED, STOPPED,
    moved,
)
from gomq_py.amqp.server.login import DOOR, LOCAL, LoginAttempt
from gomq_py.amqp.server.publish import body_begins, body_ends, publish_later
from gomq_py.amqp.server.refusals import as_amqp
from gomq_py.amqp.server.topology import REPLY_TO
from gomq_py.amqp.wire.constants import FRAME_BODY, FRAME_HEARTBEAT, FRAME_METHOD, HEADER_OVERHEAD
from gomq_py.amqp.wire.errors import (
    AccessRefused, AMQPError, ChannelError, ConnectionForced, FrameError, InternalError, NotAllowed,
    UnexpectedFrame,
)
from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, method_frame
from gomq_py.hub.alarms import AlarmHold
from gomq_py.hub.clients import SHUTDOWN
from gomq_py.amqp.wire.methods import (
    ChannelClose, ChannelCloseOk, ChannelOpen, ConnectionBlocked, ConnectionClose, ConnectionCloseOk,
    ConnectionUnblocked, ConnectionUpdateSecret, ConnectionUpdateSecretOk, decode_method,
)
from gomq_py.broker.policies.user_limits import CHANNELS
from gomq_py.broker.verbs.publishing import remembered_route
from gomq_py.broker.verbs.token_life import EXPIRED, TokenLife
from gomq_py.content.fields import decode_table
from gomq_py.errors import Refused
from gomq_py.hub.turns import SlowWalk
from gomq_py.net.listener import format_address, format_own
from gomq_py.net.output import Output
from gomq_py.net.stream import Stream
from gomq_py.observability.log import logger

LOG = logger("amqp")

# What a client has to agree to our connection.close before the socket goes: RabbitMQ's patience.
CLOSE_TIMEOUT_S = 30
# What a client has to read our last word.
LAST_WORD_TIMEOUT_S = 5
# Characters of the name a client gives its connection that are logged.
GIVEN_NAME_MAX = 256
# Why a connection ended that nothing else is known of.
BROKEN = "by a fault of the broker"
# Unacked messages of a consumer that it has not done with by the time that its acks are read: more than twice
# what the fastest client takes.
PLENTY = 32
# What a connection waits for whose client does not read.
UNREAD = "the client to read its answers"
# What a client has said of itself before it has.
NOTHING = MappingProxyType({})
# Quarters of the heartbeat interval without an octet after which a client is taken for dead: two and a half
# intervals at least. RabbitMQ waits for two to three; a machine that is busy makes clients late.
SILENT_CHECKS = 10
# Quarters between two heartbeats. Clients that read with a timeout of one interval (Java's on Netty) see an
# octet after half of it, as from RabbitMQ.
HEARTBEAT_CHECKS = 2


class Connection:
    """A client from its first octet to its last. ``why`` is the reason it ended, for the log.

    ``local_user``: as whom a client of this process logs in, without a password (see local); it came through
    no port, and counts for none.
    """

    # A dict of so many names takes 4 KiB. There is one where tests replace a method.
    __slots__ = tuple("""
        server hub admitted local_user door socket peer peer_host peer_port name durability scheduler
        events max_message_size tables max_consumers_per_channel max_consumers_per_connection
        max_unacked_per_channel default_prefetch state channels user vhost access limits output stream
        lane slow_walk login client_properties connected_at capabilities mechanism blocked_reason _alarm_hold
        takes _answering _body _has_taken_leave why _timers _token_life _silent_checks _octets_seen
        _octets_sent _checks_to_heartbeat _octets_put_back __dict__ __weakref__
    """.split())

    protocol = "AMQP 0-9-1"  # as lists of connections show it

    def __init__(self, server, socket, address, admitted=None, local_user=None):
        self.server = server
        self.hub = server.hub
        self.admitted = admitted
        self.local_user = local_user
        self.door = DOOR if local_user is None else LOCAL
        self.socket = socket
        self.peer = format_address(address)
        self.peer_host, self.peer_port = (
            (address[0].removeprefix("::ffff:"), address[1]) if isinstance(address, tuple) else ("", 0)
        )
        self.name = f"{self.peer} -> {format_own(socket.getsockname())}"
        self.durability = server.broker.durability
        self.scheduler = self.hub.scheduler
        self.events = server.broker.events
        self.max_message_size = server.settings.max_message_size
        self.tables = server.tables
        self.max_consumers_per_channel = server.settings.max_consumers_per_channel
        self.max_consumers_per_connection = server.settings.max_consumers_per_connection
        self.max_unacked_per_channel = server.settings.max_unacked_per_channel
        self.default_prefetch = server.settings.default_consumer_prefetch
        self.state = HANDSHAKE
        self.channels = {}
        self.user = self.vhost = self.access = self.limits = None
        self.output = self.stream = self.lane = self.slow_walk = self.login = None
        self.client_properties = NOTHING
        self.connected_at = time.time()
        self.capabilities = NOTHING
        self.mechanism = ""
        self.blocked_reason = None
        self.takes = False
        # whose answers connection.close-ok waits for: channels, and the connection while it releases them
        self._answering: Any = ()
        self._body = None
        self._alarm_hold = None
        self._has_taken_leave = False
        self.why = ""
        self._timers: tuple = ()
        self._token_life = None
        self._silent_checks = self._checks_to_heartbeat = 0
        self._octets_seen = self._octets_sent = self._octets_put_back = 0

    # its life

    def begin(self, over):
        """Read what the client says, and have it log in first. ``over()`` is called once when nothing more is
        read. It must not switch, and have finish() called later.
        """
        hub = self.hub
        buffers = hub.buffers
        self.output = Output(self.socket, buffers, self.server.settings.max_unread_output)
        self.stream = Stream(self.socket, buffers, self.output, hub.coalescer)
        try:
            self.login = LoginAttempt(self)
            self.login.begin()
            self.stream.begin(self.login, self.login, b"", over)
        except BaseException:
            self._end()
            raise

    def let_in(self, user, vhost, handshake, has_rest):
        """Of its login: the client is served from here on; whether the lane has something to walk at once."""
        self.server.gate.logged_in(self.admitted)
        self.client_properties, self.capabilities, self.mechanism = (
            handshake.client_properties, handshake.capabilities, handshake.mechanism
        )
        self.user, self.vhost, self.limits = user, vhost, handshake.limits
        self.output.account = user.identity, vhost.name
        self.access = self.server.access_of(user, vhost.name)
        self.login = None
        moved(self, OF_CONNECTION, OPENED)
        self._serve()
        self.stream.go_on_with(self.make_lane() if has_rest else None, self)

    def is_left_alone(self):
        """Whether finish() will not switch: nothing is left to say."""
        return not self.output.pending_octets() and self.stream.error is None

    def lend_nothing(self):
        """From now on none of its consumers takes a message, which would be counted as delivered."""
        for channel in self.channels.values():
            channel.lend_nothing()

    def finish(self):
        """Nothing is read any more: say the last word, and give everything back. Whether the client has taken
        it, and its end is to be awaited (hub.linger). May switch.
        """
        try:
            self._say_last_word()
        finally:
            self._end()
        return self._has_taken_leave

    def publishers(self):
        """What counts its publishes."""
        return list(self.channels.values())

    @staticmethod
    def unkept():
        """(messages that it was sent and no queue held, messages that were dropped on the way)."""
        return 0, 0

    @property
    def frame_max(self):
        """The negotiated size of frames in octets."""
        return self.limits.frame_max

    @property
    def properties_max(self):
        """Octets of properties that fit into a header frame to the client. To one that takes the largest
        frames there are, a larger one is sent, as by RabbitMQ: dead-lettering adds to headers, and nobody
        would get the message.
        """
        if self.limits.frame_max >= self.server.settings.frame_max:
            return ANY_SIZE
        return self.limits.frame_max - HEADER_OVERHEAD

    def _serve(self):
        """Have it counted among the clients, and told of what concerns them all."""
        server, hub = self.server, self.hub
        hub.clients.register(self)
        # Checked twice in each interval that is given here, and so every quarter of the heartbeat interval.
        hub.heartbeats.watch(self, self.limits.heartbeat_s / 2)
        if self.user.expires_at_s is not None:
            self._token_life = TokenLife(
                self.user, server.broker.logins, hub, partial(self.force_close, EXPIRED))
        self.vhost.watch_tracing(self, Connection._choose_lanes)
        self.events.on_behalf_of(
            self.user.name, self.events.emit, "connection.created", events.connection_created, self)
        self._log_life(
            "connection %s: user '%s' opened vhost '%s'%s", self.name, self.user.name, self.vhost.name,
            self._introduction(),
        )

    def _say_last_word(self):
        if self.login is not None:
            self._refuse_login()
            return
        try:
            self.stream.finish()
            self.why = self.why or self._how_it_broke()
        except FrameError as error:
            # Nothing the client sends means anything any more: it is told, and not waited for.
            said = Event()
            self.fail(error, said=said.set)
            said.wait(LAST_WORD_TIMEOUT_S)
            self._has_taken_leave = True
        except OSError as error:
            self.why = self.why or f"the socket failed: {error.strerror or error}"
        self._has_taken_leave = self.output.wait_drained(LAST_WORD_TIMEOUT_S) and self._has_taken_leave

    def _refuse_login(self):
        """The login has come to nothing: tell the log, and a client that can be told."""
        error = None
        try:
            self.stream.finish()
        except (HandshakeError, OSError) as why:
            error = why.with_traceback(None)  # which leads here
        reply = self.login.refusal(error)
        if reply:
            self.output.write(reply)
        is_sent = self.output.wait_drained(LAST_WORD_TIMEOUT_S)
        self._has_taken_leave = is_sent and bool(reply)
        if reply and self.output.error is not None:
            LOG.debug("connection %s: the refusal could not be sent: %s", self.name, self.output.error)

    def _end_login(self):
        login, self.login = self.login, None
        if login is not None:
            login.end()

    def _log_life(self, text, *arguments):
        """That it begins or ends. Whoever has connections of this process says itself what becomes of them,
        and may try again and again.
        """
        (LOG.debug if self.local_user is not None else LOG.info)(text, *arguments)

    def _introduction(self):
        """The name that the client gave its connection, for the log."""
        name = self.client_properties.get("connection_name")
        return f" as {name[:GIVEN_NAME_MAX]!r}" if isinstance(name, str) and name else ""

    def _how_it_broke(self):
        if self.output.error is not None:
            return f"the socket failed: {self.output.error.strerror or self.output.error}"
        return "the client closed the socket without connection.close"

    def _end(self):
        """Give everything back. Safe to call twice."""
        if self.state == HANDSHAKE:
            self._end_login()
            self.output.close()
        if not moved(self, OF_CONNECTION, ENDED):
            return
        self._body = None
        if self._answering:
            self._answering.clear()  # nobody hears them
        self.put_back(0)
        self.hub.heartbeats.forget(self)
        if self._alarm_hold is not None:
            self._alarm_hold.release()
        self.vhost.watch_tracing(self, None)
        for timer in self._timers:
            timer.kill(block=False)
        self._timers = ()
        if self._token_life is not None:
            self._token_life.stop()
            self._token_life = None
        if self.output is not None:
            self.vhost.totals.received_octets += self.stream.received_octets
            self.vhost.totals.sent_octets += self.output.sent_octets
            self.output.close()
        self._release(self._ended, self.hub.endings.give_back)

    def _ended(self):
        """Everything has been given back: forget the connection."""
        self.lane = None  # it holds the connection
        self.hub.clients.forget(self)
        self.hub.clients.ended.connection(
            self, self.why or BROKEN, self.client_properties.get("connection_name"))
        self.acting(self.events.emit, "connection.closed", events.connection_closed, self)
        self._log_life(
            "connection %s (%s@%s) closed: %s", self.name, self.user.name, self.vhost.name,
            self.why or BROKEN,
        )

    def _release(self, then, give_back, answering=()):
        """End the channels, and with them consumers, unacked messages and exclusive queues; then call
        ``then()``. Those of ``answering`` are released, and end when they have answered.
        """
        self.lend_nothing()  # what comes back from one channel must not go through the others
        channels = list(self.channels.values())
        self.channels.clear()
        channels.reverse()
        give_back(self._ends_of(channels, answering), then)

    def _ends_of(self, channels, answering):
        """The functions that end these channels, one after the other: a generator.

        The list, with the first channel last, is emptied: a channel is freed when it has ended.
        """
        while channels:
            channel = channels.pop()
            yield from channel.ends(channel.release if channel in answering else channel.end)
        yield partial(self.acting, self.vhost.release_owner, self)

    # what the lane hands over

    def make_lane(self):
        """Of the stream: the client has said something behind its login. Most of what it is served with is
        made for that.
        """
        hub = self.hub
        self.output.on_overflow = self._unread
        self.slow_walk = SlowWalk(self.stream, hub.slow_turns)
        self.lane = FastLane(
            self, hub.buffers, self.channels, self.limits.frame_max, self.scheduler, self.max_message_size,
            self.tables.safe_octets)
        return self.lane

    def slow_frame(self, kind, channel_id, payload):
        """A frame the fast lane does not take. Returns False when the walk must stop. Never raises."""
        return self._handled(kind, channel_id, self._frame, kind, channel_id, payload) and (
            self.slow_walk.has_time())

    def body_begins(self, channel_id, size, start, end):
        """A body frame of ``size`` octets has begun, with those of ``input[start:end]``. Whether the stream
        reads the others to where they belong; then body_ends() is called, and else the frame has to come
        whole.
        """
        channel = self.channels.get(channel_id)
        if self.state != OPEN or channel is None or not channel.is_open():
            return False
        gathered = body_begins(channel, size)
        if gathered is None:
            return False
        gathered.add(self.hub.buffers.input_view[start:end])
        self._body = channel, gathered, size
        self.stream.read_into(gathered, size - (end - start), size)
        return True

    def has_room(self, octets):
        """Whether so many octets of a body may be read ahead: what would have to wait is left to its client.
        """
        return self.hub.bodies.has_room(octets)

    def put_back(self, octets):
        """So many octets that were read ahead are kept, to be read again; 0: none any more."""
        self.hub.bodies.count_ahead(octets - self._octets_put_back)
        self._octets_put_back = octets

    def body_ends(self):
        """The frame of the last body_begins() is complete. As slow_frame."""
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
            return True  # it has said its last word
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
        """A route for the fast lane to remember, or None where each message has to be looked at. ``entry`` of
        the headers: messages have it, and the route depends on it.
        """
        try:
            name, key = exchange.decode(), routing_key.decode()
        except UnicodeDecodeError:
            return None
        if not name and key.startswith(REPLY_TO):
            return None
        if self.slow_walk.is_over():
            return None  # routes of this read have cost enough: the slow lane takes it, and ends the walk
        headers = decode_table(len(entry).to_bytes(4, "big") + entry)[0] if entry else None
        return remembered_route(self.access, self.vhost, name, key, headers, tells_delayed=True)

    def has_time(self):
        """May the fast lane go on with messages to many queues? If not it is its turn again later."""
        return self.slow_walk.has_time()

    def outruns(self, queues):
        """It publishes more than the consumers of these queues can follow: read it less eagerly, unless it
        takes messages itself, whose acks and consumers would wait, too.
        """
        if not self.takes:
            self.hub.catching_up.wait(self.stream, queues)

    def batch_done(self):
        """End of a read, or of as much of it as was walked: confirm what was published in it."""
        if self.lane is None:  # the login has ended, and nothing has come behind it
            self.scheduler.finish()
            return
        self.lane.send_confirms()

    def is_held_up(self):
        """Whether it is not read, and not because of its client."""
        return any(what != UNREAD for what in self.stream.waits_for)

    def has_plenty(self):
        """Whether a consumer has messages at hand, so that its acks may be read a little later, and nobody
        waits for confirms.
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
        self._check_user_channels()
        if not isinstance(method, ChannelOpen):
            raise blamed(ChannelError("expected 'channel.open'"), method.ID)
        channel = self.channels[channel_id] = Channel(self, channel_id)
        self.acting(self.events.emit, "channel.created", events.channel_created, channel)
        return True

    def _check_user_channels(self):
        """Raises NotAllowed if the user has as many channels, over all connections, as it may have."""
        limit = self.server.broker.user_limits.limit(self.user, CHANNELS)
        if (
            limit is not None
            and sum(len(one.channels) for one in self.hub.clients.of_user(self.user.identity)) >= limit
        ):
            raise NotAllowed(
                f"number of channels opened for user '{self.user.name}' has reached the maximum allowed user "
                f"limit of ({limit})"
            )

    def _frame_for_closing_channel(self, channel, kind, payload):
        """A frame between our channel.close and the client's agreement: everything that it sent before it
        knew is dropped.

        A channel.open is an exception: the client that sent it would wait for ever.
        """
        method_id = int.from_bytes(payload[:4], "big") if kind == FRAME_METHOD else 0
        if method_id == ChannelCloseOk.ID:
            self.forget_channel(channel)
        elif method_id == ChannelClose.ID:
            # Both sides closed at the same time. Most clients still agree to our close; those that do not may
            # open the channel again at once.
            moved(channel, OF_CHANNEL, CROSSED)
            channel.reply(ChannelCloseOk())
        elif method_id == ChannelOpen.ID:
            if moved(channel, OF_CHANNEL, REOPENED):
                self.forget_channel(channel)
                return self._open_channel(kind, channel.id, payload)
            raise blamed(ChannelError("second 'channel.open' seen"), method_id)
        return True

    def _frame_while_closing(self, kind, channel_id, payload):
        """A frame between our connection.close and the client's agreement."""
        method_id = int.from_bytes(payload[:4], "big") if kind == FRAME_METHOD and channel_id == 0 else 0
        if method_id == ConnectionClose.ID:
            self.write(method_frame(0, ConnectionCloseOk()))
        elif method_id != ConnectionCloseOk.ID:
            return True
        return self._take_leave()

    # what channels need

    def acting(self, do, *arguments):
        """Call ``do`` on behalf of the user; events emitted meanwhile name the user."""
        return self.events.on_behalf_of(self.user.name, do, *arguments)

    def write(self, octets):
        """Send octets, now or as soon as the socket takes them."""
        if self.output is not None:
            self.output.write(octets)

    def forget_channel(self, channel):
        """The channel has ended: its number is free again."""
        channel.end()
        if self.channels.get(channel.id) is channel:
            del self.channels[channel.id]
        if self._answering:
            self._answered(channel)

    publish_later = staticmethod(publish_later)  # for the fast lane

    def note_published(self, channel):
        """The slow lane took a publish of a channel in confirm mode."""
        self.lane.confirm(channel)

    def hold_publishing(self):
        """A publish came while an alarm is on: tell a client that understands it, and do not read on until
        the alarm is over.

        As in RabbitMQ, the first publish brings this about: a client that only consumes is neither held nor
        told.
        """
        if self._alarm_hold is None:
            self._alarm_hold = AlarmHold(self, self.blocked_reason)
            if self.capabilities.get("connection.blocked"):
                self.write(method_frame(0, ConnectionBlocked(reason=self.blocked_reason)))

    # ends

    def fail(self, error, level=logging.WARNING, said=None):
        """Close with an error, which the log is told at this level. ``said()`` is called behind the frame
        that tells the client, which leaves when its channels have ended.

        The client has CLOSE_TIMEOUT_S to agree; everything else it sends is dropped.
        """
        said = said or (lambda: None)
        if not moved(self, OF_CONNECTION, FAILED):
            said()
            return
        self.why = self.why or str(error)
        LOG.log(level, "connection %s: closing with %s", self.name, error)
        # Nothing that it waited for counts any more but its answer, which has to be read.
        self.stream.release_all()

        def released():
            self.write(close_frame(error))
            said()

        self._release(released, self.hub.endings.give_back_few)
        self._timers = (*self._timers, self.hub.call_later(CLOSE_TIMEOUT_S, self._stop))

    def force_close(self, reason):
        """An operator or the broker's stop closes the connection."""
        # a stop is nobody's fault, and says of each connection that it has closed
        self.fail(ConnectionForced(reason), logging.DEBUG if reason == SHUTDOWN else logging.WARNING)

    def fail_channel(self, channel, error):
        """Close one channel with an AMQPError or a Refused that no frame of the client has caused."""
        self._refuse(channel.id, as_amqp(error))

    def failed_later(self, channel, method_id, error):
        """Work that a method of this channel has begun raised in a later slice: close the channel or the
        connection.
        """
        if not isinstance(error, (AMQPError, Refused)):
            LOG.error(
                "connection %s: fault in what a client asked for on channel %d", self.name, channel.id,
                exc_info=error,
            )
            self.fail(blamed(InternalError("Unexpected error, please report"), method_id))
        elif channel.is_open():
            self._refuse(channel.id, blamed(as_amqp(error), method_id))

    def abort(self, why):
        """Drop the client without a word: it does not listen."""
        self.why = self.why or why
        LOG.warning("connection %s: %s", self.name, why)
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
        self._end_login()

    def _refuse(self, channel_id, error):
        """Turn an error into channel.close or connection.close."""
        channel = self.channels.get(channel_id)
        if error.closes_connection or channel is None:
            self.fail(error)
            return
        LOG.warning("connection %s, channel %d: closing the channel with %s", self.name, channel_id, error)
        self.hub.clients.ended.channel(self, channel_id, error)
        channel.fail(error)

    def _stop(self):
        if moved(self, OF_CONNECTION, STOPPED):
            self.stream.stop()

    def _close(self, method):
        """connection.close: exclusive queues are gone before the client hears the answer, which leaves behind
        all others, confirms that wait for the disk included. Meanwhile it is read, and what it says dropped:
        a disk that hangs keeps nobody who has gone.
        """
        self.why = f"by the client: {method.reply_code} {method.reply_text}"
        hold = self.stream.hold("its channels to end")
        self._send_confirms()
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
        """``one`` of those that connection.close-ok waits for has nothing more to say."""
        self._answering.discard(one)
        if not self._answering:
            self.write(method_frame(0, ConnectionCloseOk()))
            self._take_leave()

    def _send_confirms(self):
        """Answer what was published since the last read, before the channels end."""
        for channel in self.channels.values():
            channel.send_confirms()

    def _take_leave(self):
        """Both sides agree to close: end the connection."""
        self._has_taken_leave = True
        self._stop()
        return False

    def _update_secret(self, method):
        """A token is renewed.

        A user with a password has nothing to renew: answered as RabbitMQ does, for clients that send it by
        routine.
        """
        if self._token_life is not None:
            hold = self.stream.hold("its new token to be verified")
            self._token_life.renew(method.new_secret, hold, self._renewed, self._not_renewed)
            return False
        self.write(method_frame(0, ConnectionUpdateSecretOk()))
        return True

    def _renewed(self):
        LOG.info("connection %s: user '%s' renewed its token", self.name, self.user.name)
        self.server.withdrawals.begin(self.user)
        self.write(method_frame(0, ConnectionUpdateSecretOk()))

    def _not_renewed(self, error):
        name = self.user.name
        LOG.warning("connection %s: the token of user '%s' is not renewed: %s", self.name, name, error)
        refusal = AccessRefused(
            f"the new token of user '{name}' was refused. For details see the broker logfile.")
        self.fail(blamed(refusal.hard(), ConnectionUpdateSecret.ID))

    def _unread(self):
        """The client reads its answers more slowly than it asks: do not read from it meanwhile, and close it
        if that lasts too long.
        """
        hold = self.stream.hold(UNREAD)
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
        """Called four times per heartbeat interval: checks whether the client has sent anything, and sends a
        heartbeat when nothing has gone out for up to half of the interval.
        """
        if self.stream.received_octets != self._octets_seen:
            self._octets_seen = self.stream.received_octets
            self._silent_checks = 0
        elif self.stream.paused:
            self._silent_checks = 0
        else:
            self._silent_checks += 1
            if self._silent_checks >= SILENT_CHECKS:
                self.abort(f"missed heartbeats from the client, timeout {self.limits.heartbeat_s} s")
                return
        if self.output.sent_octets != self._octets_sent:
            self._octets_sent = self.output.sent_octets
            self._checks_to_heartbeat = HEARTBEAT_CHECKS - 1  # they may have left right after the last check
            return
        self._checks_to_heartbeat -= 1
        if self._checks_to_heartbeat <= 0 and not self.output.blocked:
            self.write(HEARTBEAT_FRAME)
            self._octets_sent = self.output.sent_octets
            self._checks_to_heartbeat = HEARTBEAT_CHECKS

    def block(self, reason):
        """An alarm is on: the slow lane gets the next publish, and holds it."""
        self.blocked_reason = reason
        self._choose_lanes()

    def unblock(self):
        """The alarm is over."""
        self.blocked_reason = None
        self._choose_lanes()
        if self._alarm_hold is not None:
            hold, self._alarm_hold = self._alarm_hold, None
            if self.capabilities.get("connection.blocked") and self.state == OPEN:
                self.write(method_frame(0, ConnectionUnblocked()))
            hold.release()

    @property
    def flow(self):
        """What an alarm does to the connection, in RabbitMQ's words: ``blocked`` if it is held, ``blocking``
        if its next publish would be, else ``running``.
        """
        if self._alarm_hold is not None:
            return "blocked"
        return "running" if self.blocked_reason is None else "blocking"

    def _choose_lanes(self):
        for channel in self.channels.values():
            channel.choose_lane()


CONNECTION_HANDLERS = {
    ConnectionClose: Connection._close,
    ConnectionUpdateSecret: Connection._update_secret,
}
