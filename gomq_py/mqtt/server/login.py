"""Login: reads CONNECT and decides whether the client may enter.

A client has ``mqtt_login_timeout`` to log in. Its CONNECT may have ``mqtt_max_octets_before_login`` bytes.
broker.verbs.entering admits the client; then the connection begins the session and sends CONNACK.
"""
import os
from base64 import urlsafe_b64encode
from functools import lru_cache
from typing import Any, NamedTuple

from gomq_py.auth.errors import LoginRefused
from gomq_py.broker.names import NAME_OCTETS_MAX
from gomq_py.broker.verbs.entering import enter
from gomq_py.connections.login import ClientLogin, LoginFailed
from gomq_py.errors import AccessRefused, Refused
from gomq_py.mqtt.model.session_kind import PREFIX
from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.mqtt.server.flows import TOPIC_ALIASES
from gomq_py.mqtt.server.refusals import client_id_code, connack_code
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.codec import decode_body, decode_fixed_header, fitting, last_packet
from gomq_py.mqtt.wire.constants import (
    CLIENT, DEFAULT_LIMITS, IDENTIFIER_MAX, MQTT_5, NO_VERSION, VARIABLE_MAX, VERSION_NAMES, PacketLimits,
)
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.packets import ConnackPacket

# Name of this door in admission, limits and lists of connections.
DOOR = "mqtt"
# Octets of a client id: with its prefix it is the name of a queue.
CLIENT_ID_OCTETS_MAX = NAME_OCTETS_MAX - len(PREFIX)
# Global parameters that map ports, and user names from certificates, to vhosts.
PORTS_TO_VHOSTS, CERTIFICATES_TO_VHOSTS = "mqtt_port_to_vhost_mapping", "mqtt_default_vhosts"
# Characters of a refusal in the log: a user name may have 65,535.
LOGGED_MAX = 512
# Client ids for clients without one: 128 random bits, 22 characters.
ASSIGNED_PREFIX, ASSIGNED_OCTETS = "gomq-", 16
PACKET_MAX = VARIABLE_MAX  # the largest value of the setting: no limit
RECEIVE_MAXIMUM = 65_535  # §3.1.2.11.3: the default of a client that sends no value


class Credentials(NamedTuple):
    """A CONNECT and its unchecked credentials. ``password``: bytes, or None without a user name."""

    connect: Any
    user_name: str
    vhost_name: str
    password: bytes | None


class LoginAttempt(ClientLogin):
    """Handles the login of one client. Success calls ``connection.let_in(user, vhost, connect, mechanism)``,
    and passes the unused bytes to the connection's FastLane.
    """

    __slots__ = ("_most_octets", "_octets", "_certified_name")

    def __init__(self, connection):
        settings = connection.server.settings
        super().__init__(connection, settings.mqtt_login_timeout)
        self._most_octets = min(settings.mqtt_max_octets_before_login, settings.mqtt_max_packet_size)
        self._octets: bytes | bytearray = b""  # of a CONNECT that has only partly arrived
        self._certified_name = self.certified_name()

    def process(self, start, end, now_ms):
        """Handle bytes ``start`` to ``end`` of the event loop's input buffer. Returns the offset after the
        used bytes. Raises LoginFailed.
        """
        connection = self.connection
        connection.scheduler.begin(now_ms)
        octets = connection.stream.buffers.input_view[start:end]
        if self._octets:
            self._octets += octets
            octets = self._octets
        try:
            connect, used = self._read_connect(octets)
        except MQTTError as error:
            raise LoginFailed(str(error), last_packet(error, NO_VERSION, connected=False)) from error
        if connect is None:
            self._octets = self._octets or bytearray(octets)
            return end
        self.end()
        end_of_connect = end - len(octets) + used
        self._octets = b""
        self._log_in(connect)
        if end_of_connect < end and connection.lane is not None and not connection.stream.paused:
            return connection.lane.process(end_of_connect, end, now_ms)
        return end_of_connect

    def finish(self):
        """Do the work that the login has caused. Called at the end of a read."""
        self.connection.scheduler.finish()

    def _read_connect(self, octets):
        """Return (CONNECT packet, its length), or (None, 0) if bytes are missing. Raises MQTTError."""
        limits = _packet_limits(self._most_octets, DEFAULT_LIMITS.payload_octets)
        head = decode_fixed_header(octets, 0, len(octets), NO_VERSION, CLIENT, limits)
        if head is None or head[2] > len(octets):
            return None, 0
        return decode_body(bytes(octets[:head[2]]), head, NO_VERSION, CLIENT, limits), head[2]

    def _log_in(self, connect):
        """Check the client's credentials, at once or in a greenlet. Raises LoginFailed."""
        if "authentication_method" in connect.properties:
            refusal = _connack(connect, reason_codes.BAD_AUTHENTICATION_METHOD)
            raise LoginFailed("CONNECT with an authentication method", refusal)
        try:
            vhost_name, user_name = self._named(connect)
        except Refused as error:
            raise _refused(connect, error, error.text) from error
        password = None if connect.user_name is None else connect.password or b""
        login = Credentials(connect, user_name, vhost_name, password)
        user = self.checked_at_once(user_name, password)
        if user is None:
            self.check_later(login)
        else:
            self._checked(user, login, 0.0)

    def _check(self, login, deadline):
        """Check the credentials. Returns the User. Raises LoginFailed. May switch greenlets."""
        try:
            return self.checked(
                login.user_name, login.password, deadline, VERSION_NAMES[login.connect.version])
        except LoginRefused as error:
            raise _refused(login.connect, error, str(error)) from error

    def _checked(self, user, login, _left_s):
        """Admit the User to the vhost. Raises LoginFailed."""
        connect = login.connect
        self.tell("success", login.user_name, VERSION_NAMES[connect.version])
        try:
            vhost = enter(
                self.broker, self.clients, user, login.vhost_name, DOOR,
                self.server.settings.mqtt_max_connections)
        except Refused as error:
            raise _refused(connect, error, error.text) from error
        fault = client_id_fault(connect.client_identifier, user.name, self.server.settings)
        if fault:
            raise LoginFailed(fault, _connack(connect, client_id_code(connect.version)))
        if self.clients.is_closing or self.connection.hub.is_closed:
            raise LoginFailed("the broker stops")
        nameless = "EXTERNAL" if self._certified_name else "ANONYMOUS"
        self.connection.let_in(user, vhost, connect, nameless if connect.user_name is None else "PLAIN")

    def _named(self, connect):
        """Return (vhost name, user name) from the CONNECT, or from the certificate. Raises AccessRefused. The
        user name may be VHOST:USER or USER.
        """
        name = connect.user_name
        if name is None:
            return self._usual_vhost(), self._certified_name or self._anonymous()
        vhost_name, colon, rest = name.rpartition(":")
        if colon and vhost_name in self.broker.vhosts and self.broker.users.get(name) is None:
            return vhost_name, rest
        return self._usual_vhost(), name

    def _usual_vhost(self):
        """Return the vhost for a client that names none: by certificate, else by port, else the default."""
        # RabbitMQ's global parameters map certificates and ports; their values may be invalid.
        vhost_name = self.server.settings.mqtt_default_vhost
        for parameter, key_of in _MAPPINGS:
            found = self.broker.parameters.global_.get(parameter)
            if isinstance(found, dict) and isinstance(found.get(key := key_of(self)), str):
                vhost_name = found[key]
        return vhost_name

    def _port(self):
        """Return the local port of the connection as text; "" for a unix socket."""
        address = self.connection.socket.getsockname()
        return str(address[1]) if isinstance(address, tuple) else ""

    def _anonymous(self):
        """Return the name of the user for clients without a user name. Raises AccessRefused."""
        name = self.server.settings.mqtt_anonymous_user
        if not name:
            raise AccessRefused("CONNECT without a user name")
        if self.broker.users.get(name) is None:
            raise AccessRefused(f"CONNECT without a user name, and anonymous_user '{name}' does not exist")
        return name

    def _refusal(self, error):
        """Log why the login failed, and return the bytes to send. ``error``: a LoginFailed, an OSError, or
        None if the client closed the socket.
        """
        name, host, strangers = self.connection.name, self.connection.peer_host, self.server.strangers
        if isinstance(error, OSError):
            strangers.info(
                ("lost", host), "connection %s lost before it logged in: %s", name, error.strerror or error)
            return b""
        error = error or LoginFailed("the peer closed the socket before CONNECT")
        strangers.warning(("refused", host), "connection %s refused: %s", name, str(error)[:LOGGED_MAX])
        return error.reply


_MAPPINGS = (
    (PORTS_TO_VHOSTS, LoginAttempt._port), (CERTIFICATES_TO_VHOSTS, lambda login: login._certified_name))


def client_id_fault(client_id, user_name, settings):
    """Return an error text if a user may not use this client id, otherwise "". An empty id passes."""
    if len(client_id.encode()) > CLIENT_ID_OCTETS_MAX:
        return f"the client id has more than {CLIENT_ID_OCTETS_MAX} bytes"
    if settings.mqtt_client_id_validation == "username" and client_id != user_name:
        return f"the client id of user '{user_name}' must be its name (mqtt client_id_validation)"
    return ""


def _refused(connect, error, text):
    return LoginFailed(text, _connack(connect, connack_code(error, connect.version)))


def _connack(connect, code):
    """Return a CONNACK that refuses the client; b"" if it is too large for the client."""
    return fitting(ConnackPacket(reason_code=code).encode(connect.version), connect.maximum_packet_size)


class Greeting:
    """The values requested by a CONNECT, limited by the settings. Also makes the CONNACK. ``expiry_s``: how
    long the session outlives the connection.
    """

    # Request Problem Information has no effect: reason strings are sent in DISCONNECT alone, which may always
    # have them.
    def __init__(self, connect, settings):
        asked = connect.properties
        self.version = connect.version
        self.clean_start = connect.clean_start
        self.client_id = connect.client_identifier
        self.will = connect.will
        self.is_bridge = connect.is_bridge
        self.receive_maximum = min(
            asked.get("receive_maximum", RECEIVE_MAXIMUM), settings.mqtt_max_inflight_messages)
        self.maximum_packet_size = connect.maximum_packet_size
        self.topic_alias_maximum = asked.get("topic_alias_maximum", 0)
        self._properties = {"topic_alias_maximum": TOPIC_ALIASES}
        # A client of 3.x cannot be told a receive maximum.
        self.inbound_maximum = IDENTIFIER_MAX
        if connect.version >= MQTT_5 and settings.mqtt_max_inflight_messages < IDENTIFIER_MAX:
            self.inbound_maximum = settings.mqtt_max_inflight_messages
            self._properties["receive_maximum"] = self.inbound_maximum
        self.packet_limits = _packet_limits(settings.mqtt_max_packet_size, settings.max_message_size)
        if settings.mqtt_max_packet_size < PACKET_MAX:
            self._properties["maximum_packet_size"] = settings.mqtt_max_packet_size
        if not self.client_id:
            unguessable = urlsafe_b64encode(os.urandom(ASSIGNED_OCTETS)).rstrip(b"=").decode()
            self.client_id = ASSIGNED_PREFIX + unguessable
            self._properties["assigned_client_identifier"] = self.client_id
        self.keep_alive_s = self._keep_alive_s(connect.keep_alive_s, settings.mqtt_max_keep_alive)
        if connect.version >= MQTT_5:
            wanted_s = asked.get("session_expiry_interval", 0)
        else:
            wanted_s = 0 if connect.clean_start else NEVER
        self.expiry_s = min(wanted_s, settings.mqtt_max_session_expiry)
        if self.expiry_s != wanted_s:
            self._properties["session_expiry_interval"] = self.expiry_s  # §3.2.2.3.2

    def _keep_alive_s(self, asked_s, most_s):
        """Return the keep alive in seconds. A 3.x client keeps its own, which CONNACK cannot change."""
        if self.version < MQTT_5 or not most_s or 0 < asked_s <= most_s:
            return asked_s
        self._properties["server_keep_alive"] = most_s  # [MQTT-3.1.2-21]
        return most_s

    def connack(self, session_present):
        return _accepting(self.version, session_present, *self._properties.items())


@lru_cache(64)
def _accepting(version, session_present, *properties):
    return ConnackPacket(session_present=session_present, properties=dict(properties)).encode(version)


@lru_cache(maxsize=2)
def _packet_limits(most_octets, payload_octets):
    return PacketLimits(packet_octets=most_octets, payload_octets=payload_octets)
