"""Connection: serves one MQTT client from its first byte to its last.

    socket > net.Stream > FastLane > Connection.packet() > HANDLERS
    output < answers, deliveries

Errors that end a connection become its last packet only here and, before CONNACK, in login. Greenlets send
only a connection's last packets; all other code here runs in the event loop and must not switch greenlets.
Each wait for the peer has a time limit.
"""
from functools import partial
from typing import NamedTuple

from gomq_py.broker.signals import events, tracing
from gomq_py.broker.verbs import publishing
from gomq_py.broker.verbs.caller import Caller
from gomq_py.connections.connection import ClientConnection, socket_failed
from gomq_py.connections.login import LAST_WORD_TIMEOUT_S
from gomq_py.errors import Refused, ResourceLocked
from gomq_py.hub.turns import SlowWalk
from gomq_py.mqtt.model import administration
from gomq_py.mqtt.model.session_kind import EXTRA, TYPE, kept_arguments
from gomq_py.mqtt.server import subscribe, will
from gomq_py.mqtt.server.fast_lane import FastLane
from gomq_py.mqtt.server.login import DOOR, RECEIVE_MAXIMUM, Greeting, LoginAttempt
from gomq_py.mqtt.server.flows import Outbound
from gomq_py.mqtt.server.publish import publish
from gomq_py.mqtt.server.refusals import end_code, session_code
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.codec import fitting, last_packet
from gomq_py.mqtt.wire.constants import (
    AUTH, DISCONNECT, MQTT_5, PINGREQ, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBSCRIBE, UNSUBSCRIBE,
    VERSION_NAMES,
)
from gomq_py.mqtt.wire.errors import MQTTError, ProtocolError
from gomq_py.mqtt.wire.packets import ConnackPacket, DisconnectPacket, PingrespPacket
from gomq_py.observability.log import logger

LOG = logger("mqtt")

# Quarters of the keep alive without an octet after which a client is gone: 1.5 times the keep alive
# (§3.1.2.10), and a quarter more at the most.
SILENT_CHECKS = 6
OPEN, CLOSING, GONE = "open", "closing", "ended"
# Most characters of an operator's reason that a client is sent.
REASON_MAX = 256
PINGRESP = PingrespPacket().encode(MQTT_5)


class ShownLimits(NamedTuple):
    """A connection's limits, as shown in lists of connections. ``heartbeat_s``: keep alive in seconds."""

    heartbeat_s: int
    channel_max: int = 0
    frame_max: int = 0


class Connection(ClientConnection):
    """Serves an MQTT client.

        session, caller        the Session (mqtt.model), and the Caller of broker operations; set at the login
        receive_maximum        Receive Maximum of CONNECT, or mqtt_max_inflight_messages if lower
        topic_alias_maximum    Topic Alias Maximum of CONNECT
        maximum_packet_size    Maximum Packet Size of CONNECT; 0: any size
        is_leaving             DISCONNECT came, with ``leave_code``; any other end is abnormal
    """

    __slots__ = (
        "caller", "session", "sessions", "outbound", "answers", "version", "receive_maximum",
        "maximum_packet_size", "topic_alias_maximum", "client_id", "is_bridge", "is_leaving", "leave_code",
        "_inbound", "_inbound_maximum", "_expiry_s", "_is_connected",
    )

    log = LOG
    LoginAttempt = LoginAttempt
    door = DOOR
    goodbye = "DISCONNECT"

    def __init__(self, server, socket, address, admitted):
        super().__init__(server, socket, address, admitted)
        self.state = OPEN
        self.caller = None
        self.session = self.sessions = self.outbound = self.answers = None
        self.version = 0
        self.receive_maximum = RECEIVE_MAXIMUM
        self.maximum_packet_size = self.topic_alias_maximum = 0
        self.client_id = ""
        self.is_leaving = self.is_bridge = False
        self.leave_code = 0
        self._inbound = self._expiry_s = None
        self._inbound_maximum = 0
        self._is_connected = False

    # its life

    def let_in(self, user, vhost, connect, mechanism):
        """Serve the client after its login. CONNACK is sent once the session is on disk."""
        greeting = Greeting(connect, self.server.settings)
        self.client_id = greeting.client_id
        self.version = greeting.version
        self.receive_maximum = greeting.receive_maximum
        self.maximum_packet_size = greeting.maximum_packet_size
        self.topic_alias_maximum = greeting.topic_alias_maximum
        self.is_bridge = greeting.is_bridge
        self.login = None
        self.output.on_overflow = partial(self.abort, "the client does not read its answers")
        self.slow_walk = SlowWalk(self.stream, self.hub.slow_turns)
        self.answers = subscribe.Answers(self)
        access = self.server.access_of(user, vhost, self.client_id)
        self.enter(user, vhost, access, ShownLimits(greeting.keep_alive_s), mechanism)
        self.caller = Caller(access, vhost, self, self.name, 0)
        self._connect(greeting)

    @property
    def is_open(self):
        """False from the moment the connection begins to end; packets are then no longer handled."""
        return self.state == OPEN

    @property
    def protocol(self):
        return VERSION_NAMES[self.version]

    @property
    def client_properties(self):
        return {"client_id": self.client_id}

    @property
    def inbound(self):
        """The Inbound, which answers publishes at QoS 1 and 2. Made on first access."""
        if self._inbound is None:
            self._inbound = self.server.make_inbound(
                self, self.durability.when_safe, self._inbound_maximum)
            if self.lane is not None:
                self.lane.set_inbound(self._inbound)
        return self._inbound

    def publishers(self):
        """Return a list of the objects that count the client's publishes."""
        return [one for one in (self.lane, self._inbound) if one is not None]

    def unkept(self):
        return (0, 0) if self.outbound is None else self.outbound.unkept()

    def _has_left(self):
        try:
            self._leave_session()
        except Exception:
            LOG.exception("connection %s: fault while leaving its session", self.name)
        return not self.output.pending_octets() and self.stream.error is None

    def _say_last_word(self):
        if self.login is not None:
            return self.login.say_last_word()
        self.why = self.why or self.how_it_broke()
        self.stream.end()
        self._leave_session()
        return self.output.wait_drained(LAST_WORD_TIMEOUT_S) and self._has_taken_leave

    def _connect(self, greeting):
        """Attach the session, and send CONNACK or refuse the client once the session is on disk."""
        self.sessions = self.vhost.extras[EXTRA]
        settings = self.server.settings
        if self.maximum_packet_size and not self._takes_connack(greeting) or (
                greeting.will is not None and not will.check(self, greeting.will)):
            return
        try:
            self._check_owner(settings.mqtt_client_id_validation == "owner")
            session, was_there, is_recorded = self.events.on_behalf_of(
                self, self.sessions.connect,
                self, self.client_id, self.user.name, greeting.clean_start, greeting.expiry_s, self.version,
                kept_arguments(settings.mqtt_max_session_octets, settings.mqtt_session_overflow),
                self.user.of_token, settings.mqtt_max_sessions_per_user)
        except Refused as error:
            self.refuse(session_code(error, self.version), error.text)
            return
        self.session = session
        session.may_get, session.may_get_all = partial(subscribe.may, self), partial(subscribe.may_all, self)
        session.interests.rights_changed()
        self.outbound = Outbound(self)
        self.outbound.start()
        if not will.begin(self, greeting.will):
            return
        if is_recorded or greeting.will is not None:
            hold = self.stream.pause_reading("its session to be on disk")
            wills = self.sessions.wills.kept
            self.durability.when_safe(
                partial(self._on_disk, greeting, was_there, hold),
                lambda: greeting.will is not None and wills.failed)
        elif self.state == OPEN:
            self._connected(greeting, was_there)

    def _on_disk(self, greeting, was_there, hold, error):
        """Send CONNACK, because session and will are on disk. After an ``error``, refuse the client."""
        try:
            if self.state != OPEN:
                return  # the connection has ended meanwhile
            if error is not None:
                self.refuse(session_code(error, self.version), f"the session is not kept: {error}")
                return
            self.session.is_safe = True
            self._connected(greeting, was_there)
        except Exception:
            LOG.exception("connection %s: fault while attaching its session", self.name)
            self.fail(MQTTError("a fault of the broker"))
        finally:
            hold.release()

    def _connected(self, greeting, was_there):
        self._is_connected = True
        self._inbound_maximum = greeting.inbound_maximum
        self.lane = FastLane(
            self, self.stream.buffers, self.scheduler, self.server.lane_parts(self.version),
            greeting.packet_limits)
        self.watch()
        self._choose_lanes()
        protocol = self.protocol
        LOG.info(
            "connection %s: user '%s' opened vhost '%s' as %r (%s)", self.name, self.user.name,
            self.vhost.name, self.client_id[:256], protocol,
        )
        self.events.emit_for(self, "connection.created", events.connection_created, self, protocol)
        self.stream.go_on_with(self.lane, self)
        self.output.write(greeting.connack(was_there))
        self.outbound.begin()
        self.server.broker_topics.connected(self.session)

    def _takes_connack(self, greeting):
        """Return whether the CONNACK fits ``maximum_packet_size``; if not, close the connection."""
        most = self.maximum_packet_size
        if fitting(greeting.connack(False), most):
            return True
        self._close(f"it takes packets of {most} bytes, its CONNACK has more", b"")
        return False

    def _check_owner(self, is_locked):
        """If another user owns the session, raise NoPermission unless the client may configure the session's
        queue. With ``is_locked``, raise ResourceLocked for a client that may configure it.
        """
        session = self.sessions.by_client.get(self.client_id)
        if session is None or session.owner == self.user.identity:
            return
        administration.check_configure(self.caller, session)
        if is_locked:
            raise ResourceLocked(
                f"the session of {self.client_id[:256]!r} is another user's (mqtt client_id_validation)")

    def _leave_session(self):
        """Detach the session, which ends if it has no expiry. A second call does nothing."""
        if self.session is None:
            return
        self._stop_delivering()
        try:
            self.sessions.disconnect(self.session, self, self._expiry_s)
        except Refused as error:
            LOG.error("connection %s: its session keeps its earlier time to live: %s", self.name, error.text)

    def _stop_delivering(self):
        if self.outbound is not None:
            self.outbound.stop()

    @property
    def wants_will(self):
        """True if the will must be published: after CONNACK, unless a DISCONNECT with code 0 (3.x: any) came.
        """
        return self._is_connected and not (self.is_leaving and self.leave_code == 0)

    # events of the session

    def taken_over(self):
        """End the connection, because another connection uses its client id."""
        if self.is_leaving:
            self._leave_session()  # its DISCONNECT came first, and waits for its turn
        self._stop_delivering()
        self._tell_end("another connection has taken over its client id", reason_codes.SESSION_TAKEN_OVER)

    def session_ended(self, reason):
        """End the connection, because the session was deleted or has expired."""
        self._stop_delivering()
        self._tell_end(f"its session has ended: {reason}", reason_codes.ADMINISTRATIVE_ACTION)

    def how_it_broke(self):
        """Return why the connection broke: the error of its stream, or a general reason; "" after a bug."""
        error = self.stream.error
        if error is None:
            return super().how_it_broke()
        if isinstance(error, OSError):
            return socket_failed(error)
        LOG.error("connection %s: fault while walking what it sent", self.name, exc_info=error)
        error.__traceback__ = None  # its frames hold the connection
        return ""

    def _end(self):
        if self.state == GONE:
            return
        self.state = GONE
        if self.user is None:  # before its login
            self.cut_off()
            return
        if self.lane is not None:
            self.lane.close()
            self.vhost.totals.add_channel(self.lane)
            self.lane = None  # the lane holds the connection
            if self._inbound is not None:
                self._inbound.close()
                self.vhost.totals.add_channel(self._inbound)
        self.answers.close()
        self.vhost.totals.add_unkept(TYPE, *self.unkept())
        self.give_back()
        self.outbound = self.caller = None  # they hold the connection
        self.forget(self.client_id, self._is_connected)

    # packets from the lane

    def packet(self, kind, walk):
        """Handle the packet that ``walk`` found last. Returns False to stop reading. Never raises."""
        try:
            return self._packet(kind, walk) and self.has_time()
        except MQTTError as error:
            self.fail(error)
        except Exception:
            LOG.exception("connection %s: fault while handling a packet of type %d", self.name, kind)
            self.fail(MQTTError("a fault of the broker"))
        return False

    def _packet(self, kind, walk):
        if self.state != OPEN:
            return False
        if kind == PUBLISH:
            return publish(self, walk)
        packet = walk.decode()
        HANDLERS[kind](self, packet)
        return self.state == OPEN and not self.stream.paused

    def _disconnect(self, packet):
        expiry_s = packet.properties.get("session_expiry_interval")
        if expiry_s and not self.session.expiry_s:
            # §3.14.2.2.2
            raise ProtocolError("DISCONNECT gives a session expiry to a session that has none")
        if expiry_s is not None:
            self._expiry_s = min(expiry_s, self.server.settings.mqtt_max_session_expiry)
        self.is_leaving, self.leave_code = True, packet.reason_code
        self.why = f"by the client: {reason_codes.name_of(DISCONNECT, packet.reason_code)}"
        # Octets behind DISCONNECT, TLS's own notice too, must not reset the connection and lose our answers.
        self._has_taken_leave = True
        if self._inbound is not None:
            self._inbound.done()
        if not self.slow_walk.is_over():
            self._leave_session()  # so that the next client, even with this client id, finds it done
        self._stop()

    def has_plenty(self):
        """Return False: reading must never wait, because an MQTT client may need an answer at once."""
        return False

    # ends

    def fail(self, error):
        """End the connection after an MQTTError. An MQTT 5 client gets a DISCONNECT with the error."""
        last_word = last_packet(error, self.version, connected=True) if self._is_connected else b""
        self._close(str(error), last_word)

    def force_close(self, reason):
        """End the connection at the request of an operator or the broker."""
        queue = None if self.session is None else self.session.queue
        if queue is not None and queue.failed:
            self._tell_end(f"its session is closed: {reason}", reason_codes.IMPLEMENTATION_SPECIFIC_ERROR)
        else:
            self._tell_end(reason, end_code(reason))

    def _tell_end(self, why, code):
        octets, why = b"", _utf8(why)
        if self.version >= MQTT_5 and self._is_connected:
            octets = DisconnectPacket(reason_code=code).encode(MQTT_5)
            if code == reason_codes.ADMINISTRATIVE_ACTION:  # a code that says nothing by itself
                told = {"reason_string": why[:REASON_MAX]}
                longer = DisconnectPacket(reason_code=code, properties=told).encode(MQTT_5)
                octets = fitting(longer, self.maximum_packet_size) or octets  # [MQTT-3.14.2-3]
        self._close(why, octets)

    def refuse(self, code, why):
        """End the connection with a refusing CONNACK, if the client accepts a packet of that size."""
        refusal = ConnackPacket(reason_code=code).encode(self.version)
        self._close(why, fitting(refusal, self.maximum_packet_size))

    def _close(self, why, last_word):
        if self.state != OPEN:
            return
        self.why = self.why or why
        LOG.warning("connection %s: closing: %s", self.name, why)
        if self._inbound is not None:
            self._inbound.leave()
        self.answers.close()  # nothing follows the last word [MQTT-3.14.4-1]
        self._stop_delivering()
        if last_word:  # 3.x has no last packet
            self.output.write(last_word)
        self._has_taken_leave = True  # octets still sent by the client must not reset it before it reads this
        self._stop()

    def _stop(self):
        if self.state == OPEN:
            self.state = CLOSING
            self.stream.stop()

    # signals

    def check_heartbeat(self):
        """End the connection if its client was silent too long. Called 4 times per keep alive."""
        if self.is_silent(SILENT_CHECKS):
            keep_alive_s = self.limits.heartbeat_s
            self.fail(KeepAliveTimeout(f"silent for 1.5 times its keep alive of {keep_alive_s} s"))

    def _choose_lanes(self):
        if self.lane is not None:
            self.lane.set_modes(self.vhost.tracing, self.blocked_reason is not None)
            self.outbound.trace(self._trace if self.vhost.tracing else None)

    def _trace(self, message):
        tracing.delivered(
            self.vhost, publishing.traced(self.caller), message, self.session.queue_name)


class KeepAliveTimeout(MQTTError):
    """The client sent nothing for 1.5 times its keep alive (§3.1.2.10)."""

    reason_code = reason_codes.KEEP_ALIVE_TIMEOUT


def _utf8(text):
    """Return the text with ? for control characters, which clients may refuse in strings [MQTT5 1.5.4]."""
    return text.encode("utf-8", "replace").decode().translate(_WITHOUT_CONTROLS)


_WITHOUT_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "?")


def _pubrel(connection, packet):
    connection.inbound.released(packet.packet_identifier)


def _acknowledged(connection, packet):
    connection.outbound.acknowledged_with(packet.TYPE, packet.packet_identifier, packet.reason_code)


def _pingreq(connection, _packet):
    connection.output.write(PINGRESP)


def _auth(_connection, _packet):
    raise ProtocolError("AUTH without an authentication method in CONNECT")  # [MQTT-4.12.0-7]


HANDLERS = {
    AUTH: _auth,
    DISCONNECT: Connection._disconnect,
    PINGREQ: _pingreq,
    PUBACK: _acknowledged,
    PUBCOMP: _acknowledged,
    PUBREC: _acknowledged,
    PUBREL: _pubrel,
    SUBSCRIBE: subscribe.subscribe,
    UNSUBSCRIBE: subscribe.unsubscribe,
}
