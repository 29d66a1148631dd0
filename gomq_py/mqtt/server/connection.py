"""Connection: one MQTT client from its first octet to its last.

    socket > net.Stream > FastLane > Connection.packet() > HANDLERS
    output < answers, deliveries

Between net and what packets ask for, and the only place of this door that turns errors into packets. A
greenlet does the login and takes up the session, another one takes leave: between them there is none, which
would cost an idle client more memory than all the rest. What happens meanwhile happens in the hub and must
not switch. Never waits for the peer without a limit of time.
"""
import time
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import gevent
from gevent.event import AsyncResult

from gomq_py.broker.signals import connection_events, tracing
from gomq_py.broker.verbs import publishing
from gomq_py.broker.verbs.caller import Caller
from gomq_py.broker.verbs.token_life import EXPIRED, TokenLife
from gomq_py.errors import Refused, ResourceLocked
from gomq_py.hub.alarms import AlarmHold
from gomq_py.hub.turns import SlowWalk
from gomq_py.mqtt.model import administration
from gomq_py.mqtt.model.session_kind import EXTRA, TYPE, kept_arguments
from gomq_py.mqtt.server import subscribe, will
from gomq_py.mqtt.server.fast_lane import FastLane
from gomq_py.mqtt.server.greeting import RECEIVE_MAXIMUM, Greeting
from gomq_py.mqtt.server.login import DOOR, LoginAttempt
from gomq_py.mqtt.server.outbound import Outbound
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
# Characters of an operator's words to a client.
REASON_MAX = 256
PINGRESP = PingrespPacket().encode(MQTT_5)


class Limits(NamedTuple):
    """What lists of connections show of limits; there are no channels and no frames. ``heartbeat_s`` is the
    keep alive.
    """

    heartbeat_s: int
    channel_max: int = 0
    frame_max: int = 0


class Connection:
    """A client. ``why`` is the reason it ended, for the log.

    From CONNACK on: ``session`` (mqtt.model), the ``caller`` of verbs with its ``access``, and what the
    client said of itself: ``receive_maximum``, ``maximum_packet_size`` (0: any), ``topic_alias_maximum``
    its ``will``, and whether it ``is_bridge``.
    ``is_leaving``: it said DISCONNECT, with this ``leave_code``; without one its end is abnormal.
    """

    door = DOOR
    channels = MappingProxyType({})
    capabilities = MappingProxyType({})
    __slots__ = (
        "server", "hub", "admitted", "socket", "peer", "peer_host", "peer_port", "name", "durability",
        "scheduler", "state", "user", "vhost", "limits", "access", "caller", "output", "stream", "slow_walk",
        "session", "sessions", "outbound", "answers", "lane", "version", "receive_maximum",
        "maximum_packet_size", "topic_alias_maximum", "client_id", "mechanism", "is_bridge",
        "connected_at", "blocked_reason", "why", "is_leaving", "leave_code", "will", "_inbound",
        "_inbound_maximum", "_alarm_hold", "_expiry_s", "_is_connected", "_has_said_last_word", "_when_gone",
        "_token_life", "_silent_checks", "_octets_seen", "_until_safe", "__weakref__",
    )

    def __init__(self, server, socket, address, admitted=None):
        self.server = server
        self.hub = server.hub
        self.admitted = admitted
        self.socket = socket
        self.peer = format_address(address)
        self.peer_host = host_of(address)
        self.peer_port = address[1] if isinstance(address, tuple) else 0
        self.name = f"{self.peer} -> {format_address(socket.getsockname())}"
        self.durability = server.broker.durability
        self.scheduler = self.hub.scheduler
        self.state = OPEN
        self.user = self.vhost = self.limits = self.access = self.caller = None
        self.output = self.stream = self.slow_walk = None
        self.session = self.sessions = self.outbound = self.answers = self.lane = None
        self._inbound = self._alarm_hold = self._when_gone = None
        self._inbound_maximum = 0
        self.version = 0
        self.receive_maximum = RECEIVE_MAXIMUM
        self.maximum_packet_size = self.topic_alias_maximum = 0
        self.client_id = self.mechanism = ""
        self.connected_at = time.time()
        self.blocked_reason = None
        self.why = ""
        self.is_leaving = self.is_bridge = False
        self.leave_code = 0
        self.will = None
        self._expiry_s = None
        self._is_connected = False
        self._has_said_last_word = False
        self._token_life = None
        self._silent_checks = self._octets_seen = 0
        self._until_safe: Any = None  # what begin() waits for

    # its life

    def begin(self):
        """Log the client in and take up its session. Returns whether it is served from here on: who waits
        for its end says so to when_gone(). May switch.
        """
        login = LoginAttempt(
            self.server, self.socket, self.name, self.peer_host, self.peer_port, self.admitted).run()
        if login is None or self.hub.is_closed:
            return False
        self.server.gate.logged_in(self.admitted)
        greeting = Greeting(login.connect, self.server.settings)
        self.user, self.vhost, self.client_id = login.user, login.vhost, greeting.client_id
        self.mechanism = login.mechanism
        self.version = greeting.version
        self.receive_maximum = greeting.receive_maximum
        self.maximum_packet_size = greeting.maximum_packet_size
        self.topic_alias_maximum = greeting.topic_alias_maximum
        self.will = greeting.will
        self.is_bridge = greeting.is_bridge
        self.limits = Limits(greeting.keep_alive_s)
        self.access = self.server.access_of(self.user, self.vhost, self.client_id)
        self.caller = Caller(self.access, self.vhost, self, self.name, 0)
        rest = login.rest
        del login  # which holds the password
        self._make_parts()
        is_served = False
        try:
            is_served = self._connect(greeting)
            if is_served:
                self.stream.begin(self.lane, self, rest, self._over)
        finally:
            if not is_served:
                self._take_leave()
        return is_served

    def when_gone(self, callback, *arguments):
        """Call ``callback(*arguments)`` when the client is gone and all is given back: the socket may be
        closed.
        """
        self._when_gone = partial(callback, *arguments)

    @property
    def is_open(self):
        """Whether what it asks for is done: it has not been told of its end."""
        return self.state == OPEN

    @property
    def protocol(self):
        """What it speaks, for lists of connections."""
        return VERSION_NAMES[self.version]

    @property
    def client_properties(self):
        """What the client says of itself, for lists of connections."""
        return {"client_id": self.client_id}

    @property
    def inbound(self):
        """What its publishes at QoS 1 and 2 are answered by, made for the first of them: most devices have
        none.
        """
        if self._inbound is None:
            self._inbound = self.server.make_inbound(
                self, self.durability.when_safe, self._inbound_maximum)
            if self.lane is not None:
                self.lane.set_inbound(self._inbound)
        return self._inbound

    def publishers(self):
        """What counts its publishes."""
        return [one for one in (self.lane, self._inbound) if one is not None]

    def unkept(self):
        """As Outbound.unkept()."""
        return (0, 0) if self.outbound is None else self.outbound.unkept()

    def _make_parts(self):
        hub = self.hub
        self.output = Output(self.socket, hub.buffers, self.server.settings.max_unread_output)
        self.output.account = self.user.identity, self.vhost.name
        self.output.on_overflow = partial(self.abort, "the client does not read its answers")
        self.stream = Stream(self.socket, hub.buffers, self.output, hub.coalescer)
        self.slow_walk = SlowWalk(self.stream, hub.slow_turns)
        self.answers = subscribe.Answers(self)
        hub.clients.register(self)

    def _over(self):
        """Nothing more is read. It ends when it is its turn: where a network fails, thousands do at once."""
        gevent.get_hub().loop.run_callback(self.hub.slow_turns.call, self._end_in_turn)

    def _end_in_turn(self):
        """In the loop: most of the time goes into the session's end, and counts."""
        try:
            self._leave_session()
        except Exception:
            LOG.exception("connection %s: fault while leaving its session", self.name)
        gevent.spawn(self._end_of_stream).name = f"{DOOR} {self.peer}"

    def _end_of_stream(self):
        """Take leave of a client that has been served. May switch."""
        self.hub.slow_turns.has_time()  # so that its time counts
        self.why = self.why or self._how_it_broke()
        try:
            self._take_leave()
        except Exception:
            LOG.exception("connection %s: fault while ending it", self.name)
        finally:
            self.server.gate.leave(self.admitted)
            if self._when_gone is not None:
                self._when_gone()

    def _take_leave(self):
        """Let the client have our last word, and give everything back. May switch."""
        try:
            self.stream.end()
            self._leave_session()
            self._has_said_last_word = (
                self.output.wait_drained(LAST_WORD_TIMEOUT_S) and self._has_said_last_word)
        finally:
            self._end()
        if self._has_said_last_word:
            self.hub.lingering.end(self.socket)

    def _connect(self, greeting):
        """Take up or begin the session, and say CONNACK when that is on the disk. Returns whether the client
        is served. May switch.
        """
        self.sessions = self.vhost.extras[EXTRA]
        settings = self.server.settings
        if not self._takes_connack(greeting) or not will.check(self, greeting.will):
            return False
        try:
            self._check_owner(settings.mqtt_client_id_validation == "owner")
            session, was_there, is_recorded = self.sessions.connect(
                self, self.client_id, self.user.name, greeting.clean_start, greeting.expiry_s, self.version,
                kept_arguments(settings.mqtt_max_session_octets, settings.mqtt_session_overflow),
                self.user.of_token, settings.mqtt_max_sessions_per_user)
        except Refused as error:
            self.refuse(session_code(error, self.version), error.text)
            return False
        self.session = session
        session.may_get, session.may_get_all = self.may_get, self.may_get_all
        session.interests.rights_changed()
        self.outbound = Outbound(self)
        self.outbound.start()
        if not will.begin(self, greeting.will):
            return False
        if is_recorded or greeting.will is not None:
            try:
                self._wait_until_safe(greeting.will is not None)
                session.is_safe = session.is_safe or self.state == OPEN
            except Exception as error:
                self.refuse(session_code(error, self.version), f"the session is not kept: {error}")
        if self.state != OPEN:
            return False
        self._is_connected = True
        hub = self.hub
        self._open_lane(greeting)
        # Checked twice in each interval that is given here, and so every quarter of the keep alive.
        hub.heartbeats.watch(self, self.limits.heartbeat_s / 2)
        if self.user.expires_at_s is not None:
            logins = self.server.broker.logins
            self._token_life = TokenLife(self.user, logins, hub, partial(self.force_close, EXPIRED))
        LOG.info(
            "connection %s: user '%s' opened vhost '%s' as %r (%s)", self.name, self.user.name,
            self.vhost.name, self.client_id[:256], self.protocol,
        )
        self._tell("connection.created", connection_events.connection_created, self, self.protocol)
        self.output.write(greeting.connack(was_there))
        self.outbound.begin()
        self.server.broker_topics.connected(session)
        return True

    def _takes_connack(self, greeting):
        """Whether the client accepts so large a packet; else it ends."""
        most = self.maximum_packet_size
        if not most or fitting(greeting.connack(False), most):
            return True
        self._close(f"it takes packets of {most} octets, its CONNACK has more", b"")
        return False

    def _open_lane(self, greeting):
        self._inbound_maximum = greeting.inbound_maximum
        self.lane = FastLane(
            self, self.hub.buffers, self.scheduler, self.server.lane_parts(self.version),
            greeting.packet_limits)
        self.vhost.watch_tracing(self, Connection._choose_lane)
        self._choose_lane()

    def _check_owner(self, is_locked):
        """To take or end a session of another user takes the right to configure it, as anywhere, unless such
        a session ``is_locked``. Raises ResourceLocked, NoPermission.
        """
        session = self.sessions.by_client.get(self.client_id)
        if session is None or session.owner == self.user.identity:
            return
        administration.check_configure(self.caller, session)
        if is_locked:
            raise ResourceLocked(
                f"the session of {self.client_id[:256]!r} is another user's (mqtt client_id_validation)")

    def _wait_until_safe(self, has_will):
        """Return when the session, and the will if it has one, is on the disk, or the connection is to end.
        Raises the disk's error; that of a queue's files is not about them. May switch.
        """
        wills = self.sessions.wills.kept
        result = self._until_safe = AsyncResult()
        self.durability.when_safe(
            lambda error: result.set(None) if error is None else result.set_exception(error),
            lambda: has_will and wills.failed)
        try:
            result.get()
        finally:
            self._until_safe = None

    def _leave_session(self):
        """Let go of the session: what is not kept goes, and its will. Safe to call twice."""
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
        """Whether its will is to be published, now that it ends: unless it has said DISCONNECT with the
        reason code 0, the only one of 3.x.
        """
        return self._is_connected and not (self.is_leaving and self.leave_code == 0)

    # what happens to the session

    def taken_over(self):
        """Another connection comes with the client id."""
        if self.is_leaving:
            self._leave_session()  # its DISCONNECT came first, and waits for its turn
        self._stop_delivering()
        self._tell_end("another connection has taken over its client id", reason_codes.SESSION_TAKEN_OVER)

    def session_ended(self, reason):
        """Somebody deleted the session, or it expired."""
        self._stop_delivering()
        self._tell_end(f"its session has ended: {reason}", reason_codes.ADMINISTRATIVE_ACTION)

    def may_get(self, topic_filter):
        """Whether its user may still have what comes by a filter that it has subscribed to."""
        return subscribe.may(self, topic_filter)

    def may_get_all(self):
        """Whether that is so for every filter, until its user's rights change."""
        return subscribe.may_all(self)

    def rights_changed(self):
        """Its user may do other things now: deliveries ask again."""
        if self.session is not None:
            self.session.interests.rights_changed()

    def _how_it_broke(self):
        error = self.stream.error
        if error is not None and not isinstance(error, OSError):
            LOG.error("connection %s: fault while walking what it sent", self.name, exc_info=error)
            error.__traceback__ = None  # its frames hold the connection
            return ""
        if error is not None:
            return f"the socket failed: {error.strerror or error}"
        if self.output.error is not None:
            return f"the socket failed: {self.output.error.strerror or self.output.error}"
        return "the client closed the socket without DISCONNECT"

    def _end(self):
        """Give everything back. Safe to call twice."""
        if self.state == GONE:
            return
        self.state = GONE
        self.hub.heartbeats.forget(self)
        if self._alarm_hold is not None:
            self._alarm_hold.release()
        if self._token_life is not None:
            self._token_life.stop()
            self._token_life = None
        if self.lane is not None:
            self.vhost.watch_tracing(self, None)
            self.lane.close()
            self.vhost.totals.add_channel(self.lane)
            self.lane = None  # it holds the connection
            if self._inbound is not None:
                self._inbound.close()
                self.vhost.totals.add_channel(self._inbound)
        if self.stream is not None:
            self.answers.close()
            self.vhost.totals.received_octets += self.stream.received_octets
            self.vhost.totals.sent_octets += self.output.sent_octets
            self.vhost.totals.add_unkept(TYPE, *self.unkept())
            self.output.close()
            self.outbound = self.caller = None  # they hold the connection
        self.hub.clients.forget(self)
        if self._is_connected:
            self.hub.clients.ended.connection(self, self.why or "by a fault of the broker", self.client_id)
            self._tell("connection.closed", connection_events.connection_closed, self)
        LOG.info(
            "connection %s (%s@%s) closed: %s", self.name, self.user.name, self.vhost.name,
            self.why or "by a fault of the broker",
        )

    def _tell(self, key, headers_of, *subjects):
        """An event, brought about by the client."""
        events = self.server.broker.events
        events.on_behalf_of(self.user.name, events.emit, key, headers_of, *subjects)

    # what the lane hands over

    def packet(self, kind, walk):
        """A packet that the walk stands at. Returns False when it must stop. Never raises."""
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

    def _pubrel(self, packet):
        self.inbound.released(packet.packet_identifier)

    def _acknowledged(self, packet):
        self.outbound.acknowledged_with(packet.TYPE, packet.packet_identifier, packet.reason_code)

    def _pingreq(self, _packet):
        self.output.write(PINGRESP)

    def _disconnect(self, packet):
        expiry_s = packet.properties.get("session_expiry_interval")
        if expiry_s and not self.session.expiry_s:
            # §3.14.2.2.2
            raise ProtocolError("DISCONNECT gives a session expiry to a session that has none")
        if expiry_s is not None:
            self._expiry_s = min(expiry_s, self.server.settings.mqtt_max_session_expiry)
        self.is_leaving, self.leave_code = True, packet.reason_code
        self.why = f"by the client: {reason_codes.name_of(DISCONNECT, packet.reason_code)}"
        # What comes behind, TLS's own notice too, must not reset the connection, and with it our answers.
        self._has_said_last_word = True
        if self._inbound is not None:
            self._inbound.done()
        if not self.slow_walk.is_over():
            self._leave_session()  # so that whoever comes next, with this client id too, finds it done
        self._stop()

    def _auth(self, _packet):
        raise ProtocolError("AUTH without an authentication method in CONNECT")  # [MQTT-4.12.0-7]

    def has_time(self):
        """May the walk go on? If not it is its turn again later."""
        return self.slow_walk.has_time()

    def batch_done(self):
        """End of a read, or of as much of it as was walked."""

    def has_plenty(self):
        """Whether the client has so much to do that it waits for no answer."""
        return False

    # ends

    def fail(self, error):
        """End because of an MQTTError, and say so where the version has a word for it."""
        last_word = last_packet(error, self.version, connected=True) if self._is_connected else b""
        self._close(str(error), last_word)

    def force_close(self, reason):
        """An operator, or the broker, ends the connection."""
        queue = None if self.session is None else self.session.queue
        if queue is not None and queue.failed:
            self._tell_end(f"its session is closed: {reason}", reason_codes.IMPLEMENTATION_SPECIFIC_ERROR)
        else:
            self._tell_end(reason, end_code(reason))

    def _tell_end(self, why, code):
        octets, why = b"", _utf8(why)
        if self.version >= MQTT_5 and self._is_connected:
            octets = DisconnectPacket(reason_code=code).encode(MQTT_5)
            if code == reason_codes.ADMINISTRATIVE_ACTION:  # which says nothing by itself
                told = {"reason_string": why[:REASON_MAX]}
                longer = DisconnectPacket(reason_code=code, properties=told).encode(MQTT_5)
                octets = fitting(longer, self.maximum_packet_size) or octets  # [MQTT-3.14.2-3]
        self._close(why, octets)

    def refuse(self, code, why):
        """The last word is a CONNACK that refuses, if the client takes it."""
        refusal = ConnackPacket(reason_code=code).encode(self.version)
        self._close(why, fitting(refusal, self.maximum_packet_size))

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
        if self._inbound is not None:
            self._inbound.leave()
        self.answers.close()  # nothing follows the last word [MQTT-3.14.4-1]
        self._stop_delivering()
        if last_word:  # 3.x has none
            self.output.write(last_word)
        self._has_said_last_word = True  # what the client still sends must not reset it before it is heard
        self._stop()

    def _stop(self):
        if self.state == OPEN:
            self.state = CLOSING
            self.stream.stop()
            if self._until_safe is not None:
                self._until_safe.set(None)

    def cut_off(self):
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
        self._choose_lane()

    def unblock(self):
        """The alarm is over."""
        self.blocked_reason = None
        self._choose_lane()
        if self._alarm_hold is not None:
            hold, self._alarm_hold = self._alarm_hold, None
            hold.release()

    def hold_publishing(self):
        """A PUBLISH while an alarm is on: read no further until it is over."""
        if self._alarm_hold is None:
            self._alarm_hold = AlarmHold(self, self.blocked_reason)

    def _choose_lane(self):
        if self.lane is not None:
            self.lane.set_modes(self.vhost.tracing, self.blocked_reason is not None)
            self.outbound.trace(self._trace if self.vhost.tracing else None)

    def _trace(self, message):
        """A message goes out while the vhost is traced."""
        tracing.delivered(
            self.vhost, publishing.traced(self.caller), message, self.session.queue_name)

    @property
    def flow(self):
        """What an alarm does to it, in RabbitMQ's words: ``blocked`` when it is held, ``blocking`` when its
        next publish would be, or ``running``.
        """
        if self._alarm_hold is not None:
            return "blocked"
        return "running" if self.blocked_reason is None else "blocking"


class KeepAliveTimeout(MQTTError):
    """Nothing came for 1.5 times the keep alive (§3.1.2.10)."""

    reason_code = reason_codes.KEEP_ALIVE_TIMEOUT


def _utf8(text):
    """A text that a string of MQTT can hold, without control characters, which a client need not take
    [MQTT5 1.5.4].
    """
    return text.encode("utf-8", "replace").decode().translate(_WITHOUT_CONTROLS)


_WITHOUT_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "?")


HANDLERS = {
    AUTH: Connection._auth,
    DISCONNECT: Connection._disconnect,
    PINGREQ: Connection._pingreq,
    PUBACK: Connection._acknowledged,
    PUBCOMP: Connection._acknowledged,
    PUBREC: Connection._acknowledged,
    PUBREL: Connection._pubrel,
    SUBSCRIBE: subscribe.subscribe,
    UNSUBSCRIBE: subscribe.unsubscribe,
}
