"""Connection: one MQTT client from its first octet to its last.

    socket > net.Stream > PacketLane > Connection.packet()
    output < answers

Between net and what packets ask for, and the only place of this door that turns errors into packets. Its
greenlet does the login and then sleeps in Stream.run() until the client is gone; everything else happens in
the hub and must not switch. Never waits for the peer without a limit of time.

So far it takes PINGREQ and DISCONNECT; what it does not take ends the connection.
"""
import time
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from gomq_py.broker.verbs.token_life import EXPIRED, TokenLife
from gomq_py.hub.slow_walk import SlowWalk
from gomq_py.mqtt.server.login import DOOR, LoginAttempt
from gomq_py.mqtt.server.refusals import end_code
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.codec import last_packet
from gomq_py.mqtt.wire.constants import CLIENT, DISCONNECT, MQTT_5, PINGREQ, VERSION_NAMES
from gomq_py.mqtt.wire.constants import Limits as PacketLimits
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.frames import PacketWalk
from gomq_py.mqtt.wire.packets import DisconnectPacket, PingrespPacket
from gomq_py.net.listener import format_address, host_of
from gomq_py.net.output import Output
from gomq_py.net.stream import Stream
from gomq_py.observability.log import logger

LOG = logger("mqtt")

# What a client has to read our last word.
LAST_WORD_TIMEOUT_S = 5
# Quarters of the keep alive without an octet after which a client is gone: 1.5 times the keep alive
# (§3.1.2.10), and a quarter more at the most.
SILENT_CHECKS = 6
OPEN, CLOSING, GONE = "open", "closing", "ended"
PINGRESP = PingrespPacket().encode(MQTT_5)


class Limits(NamedTuple):
    """What lists of connections show of limits; there are no channels and no frames. ``heartbeat_s`` is the
    keep alive.
    """

    heartbeat_s: int
    channel_max: int = 0
    frame_max: int = 0


class Unsupported(MQTTError):
    """A packet that this door does not take yet."""

    reason_code = reason_codes.IMPLEMENTATION_SPECIFIC_ERROR


class Connection:
    """A client. ``why`` is the reason it ended, for the log."""

    door = DOOR
    channels = MappingProxyType({})
    capabilities = MappingProxyType({})
    mechanism = "PLAIN"

    def __init__(self, server, socket, address, admitted=None):
        self.server = server
        self.hub = server.hub
        self.admitted = admitted
        self.socket = socket
        self.peer = format_address(address)
        self.peer_host = host_of(address)
        self.peer_port = address[1] if isinstance(address, tuple) else 0
        self.name = f"{self.peer} -> {format_address(socket.getsockname())}"
        self.state = OPEN
        self.user = self.vhost = self.limits = None
        self.output = self.stream = self.slow_walk = None
        self.version = 0
        self.client_id = ""
        self.client_properties = {}
        self.connected_at = time.time()
        self.blocked_reason = None
        self.why = ""
        self._has_said_last_word = False
        self._token_life = None
        self._silent_checks = self._octets_seen = 0

    # its life

    def run(self):
        """Serve the client until it is gone. May switch."""
        session = LoginAttempt(self.server, self.socket, self.name, self.peer_host).run()
        if session is None or self.hub.is_closed:
            return
        self.server.gate.logged_in(self.admitted)
        connect = session.connect
        self.user, self.vhost, self.client_id = session.user, session.vhost, session.client_id
        self.version = connect.version
        self.limits = Limits(connect.keep_alive_s)
        self.client_properties = {"client_id": self.client_id}
        rest = session.rest
        del session, connect  # which hold the password
        try:
            self._serve(rest)
        finally:
            self._end()
        if self._has_said_last_word:
            self.hub.lingering.end(self.socket)

    @property
    def protocol(self):
        """What it speaks, for lists of connections."""
        return VERSION_NAMES[self.version]

    def _serve(self, rest):
        """Read until the end. May switch."""
        hub = self.hub
        self.output = Output(self.socket, hub.buffers, self.server.settings.max_unread_output)
        self.output.on_overflow = partial(self.abort, "the client does not read its answers")
        self.stream = Stream(self.socket, hub.buffers, self.output, hub.coalescer)
        self.slow_walk = SlowWalk(self.stream, hub.slow_turns)
        hub.at_close(self._cut_off)
        hub.clients.register(self)
        # Checked twice in each interval that is given here, and so every quarter of the keep alive.
        hub.heartbeats.watch(self, self.limits.heartbeat_s / 2)
        if self.user.expires_at_s is not None:
            logins = self.server.broker.logins
            self._token_life = TokenLife(self.user, logins, hub, partial(self.force_close, EXPIRED))
        LOG.info(
            "connection %s: user '%s' opened vhost '%s' as %r (%s)", self.name, self.user.name,
            self.vhost.name, self.client_id[:256], self.protocol,
        )
        try:
            self.stream.run(PacketLane(self, hub.buffers), self, rest)
            self.why = self.why or self._how_it_broke()
        except OSError as error:
            self.why = self.why or f"the socket failed: {error.strerror or error}"
        drained = self.output.wait_drained(LAST_WORD_TIMEOUT_S)
        self._has_said_last_word = self._has_said_last_word and drained

    def _how_it_broke(self):
        if self.output.error is not None:
            return f"the socket failed: {self.output.error.strerror or self.output.error}"
        return "the client closed the socket without DISCONNECT"

    def _end(self):
        """Give everything back. Safe to call twice."""
        if self.state == GONE:
            return
        self.state = GONE
        self.hub.not_at_close(self._cut_off)
        self.hub.heartbeats.forget(self)
        if self._token_life is not None:
            self._token_life.stop()
            self._token_life = None
        if self.stream is not None:
            self.vhost.totals.received_octets += self.stream.received_octets
            self.vhost.totals.sent_octets += self.output.sent_octets
            self.output.close()
        self.hub.clients.forget(self)
        LOG.info(
            "connection %s (%s@%s) closed: %s", self.name, self.user.name, self.vhost.name,
            self.why or "by a fault of the broker",
        )

    # what the lane hands over

    def packet(self, kind, walk):
        """A packet that the walk stands at. Returns False when it must stop. Never raises."""
        try:
            return self._packet(kind, walk) and self.slow_walk.has_time()
        except MQTTError as error:
            self.fail(error)
        except Exception:
            LOG.exception("connection %s: fault while handling a packet of type %d", self.name, kind)
            self.fail(MQTTError("a fault of the broker"))
        return False

    def _packet(self, kind, walk):
        packet = walk.decode()
        if kind == PINGREQ:
            self.output.write(PINGRESP)
            return True
        if kind == DISCONNECT:
            self.why = f"by the client: {reason_codes.name_of(DISCONNECT, packet.reason_code)}"
            self._stop()
            return False
        raise Unsupported(f"{packet.NAME} is not served yet")

    def batch_done(self):
        """End of a read, or of as much of it as was walked."""
        self.slow_walk.done()

    def has_plenty(self):
        """Whether the client has so much to do that it waits for no answer."""
        return False

    # ends

    def fail(self, error):
        """End because of an MQTTError, and say so where the version has a word for it."""
        self._close(str(error), last_packet(error, self.version, connected=True))

    def force_close(self, reason):
        """An operator, or the broker, ends the connection."""
        octets = b""
        if self.version >= MQTT_5:
            octets = DisconnectPacket(reason_code=end_code(reason)).encode(MQTT_5)
        self._close(reason, octets)

    def abort(self, why):
        """Drop the client without a word: it does not listen."""
        self.why = self.why or why
        LOG.warning("connection %s: %s", self.name, why)
        self.output.close()
        self._stop()

    def _close(self, why, last_word):
        if self.state != OPEN:
            return
        self.why = self.why or why
        LOG.warning("connection %s: closing: %s", self.name, why)
        if last_word:  # 3.x has none
            self.output.write(last_word)
        self._has_said_last_word = True  # what the client still sends must not reset it before it is heard
        self._stop()

    def _stop(self):
        if self.state == OPEN:
            self.state = CLOSING
            self.stream.stop()

    def _cut_off(self):
        """The hub is closed: nothing is read or written any more, and nobody is told."""
        self.stream.stop()
        self.output.close()
        self.hub.clients.forget(self)

    # signals

    def check_heartbeat(self):
        """Four times per keep alive: has the client sent anything?"""
        if self.stream.received_octets != self._octets_seen or self.stream.paused:
            self._octets_seen = self.stream.received_octets
            self._silent_checks = 0
            return
        self._silent_checks += 1
        if self._silent_checks >= SILENT_CHECKS:
            keep_alive_s = self.limits.heartbeat_s
            self.fail(KeepAliveTimeout(f"silent for 1.5 times its keep alive of {keep_alive_s} s"))

    def block(self, reason):
        """An alarm: what is published is to be held."""
        self.blocked_reason = reason

    def unblock(self):
        """The alarm is over."""
        self.blocked_reason = None

    @property
    def flow(self):
        """What an alarm does to it, in RabbitMQ's words."""
        return "running" if self.blocked_reason is None else "blocking"


class KeepAliveTimeout(MQTTError):
    """Nothing came for 1.5 times the keep alive (§3.1.2.10)."""

    reason_code = reason_codes.KEEP_ALIVE_TIMEOUT


class PacketLane:
    """Walks what was read, packet by packet."""

    def __init__(self, connection, buffers):
        self._connection = connection
        self._buffers = buffers
        # A packet that is not there as a whole waits in front of the next read.
        self._walk = PacketWalk(connection.version, CLIENT, PacketLimits(packet_octets=buffers.reserve))

    def process(self, start, end, _now_ms):
        """Hand over every whole packet. Returns the first octet that was not walked. Never raises."""
        walk, connection = self._walk, self._connection
        walk.begin(self._buffers.input, start, end)
        try:
            kind = walk.next_packet()
            while kind and connection.packet(kind, walk):
                kind = walk.next_packet()
        except MQTTError as error:
            connection.fail(error)
        return walk.finish()

    def finish(self):
        """Nothing is left over."""
