"""Login: reads CONNECT and decides whether the client may enter.

Runs in the connection's greenlet. Refusals are written directly to the socket, because there is no other
output yet. A client has ``mqtt_login_timeout`` to log in; until its login one small packet is kept.
broker.verbs.entering decides; then the connection begins the session and sends CONNACK.
"""
import os
from base64 import urlsafe_b64encode
from functools import lru_cache, partial
from typing import Any, NamedTuple

import gevent
from gevent import Timeout

from gomq_py.auth.certificates import certified_name
from gomq_py.auth.errors import LoginRefused
from gomq_py.auth.login_deadline import LoginDeadline
from gomq_py.broker.names import NAME_OCTETS_MAX
from gomq_py.broker.verbs.entering import enter
from gomq_py.connections.login import ClientLogin
from gomq_py.errors import AccessRefused, Refused
from gomq_py.mqtt.model.session_kind import PREFIX
from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.mqtt.server.flows import TOPIC_ALIASES
from gomq_py.mqtt.server.refusals import client_id_code, connack_code
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.codec import decode_fixed_header, decode_packet, fitting, last_packet
from gomq_py.mqtt.wire.constants import (
    CLIENT, IDENTIFIER_MAX, MQTT_5, NO_VERSION, VARIABLE_MAX, VERSION_NAMES, PacketLimits,
)
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.packets import ConnackPacket
from gomq_py.observability.log import logger

LOG = logger("mqtt")
# Name of this door in admission, limits and lists of connections.
DOOR = "mqtt"
READ_OCTETS = 16 * 1024
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


class LoginEnd(Exception):
    """Ends a login that failed. ``reply``: octets to send before the close; the text goes into the log."""

    def __init__(self, text, reply=b""):
        super().__init__(text)
        self.reply = reply


class Login(NamedTuple):
    """The result of a login: ``connect`` is the packet, ``rest`` the octets received behind it.
    ``mechanism``: SASL name of the client's authentication.
    """

    user: Any
    vhost: Any
    connect: Any
    rest: bytes
    mechanism: str


class LoginAttempt(ClientLogin):
    """Handles the login of one client."""

    __slots__ = ("_socket", "_most_octets", "_deadline", "_certified_name", "_octets")

    def __init__(self, connection):
        settings = connection.server.settings
        super().__init__(connection, settings.mqtt_login_timeout)
        self._socket = connection.socket
        self._most_octets = min(settings.mqtt_max_octets_before_login, settings.mqtt_max_packet_size)
        self._deadline = LoginDeadline(self.timeout_s, LoginEnd(f"no login within {self.timeout_s} s"))
        self._certified_name = certified_name(self._socket, settings)
        self._octets = bytearray()

    def run(self):
        """The Login, or None if the client was refused and the reason logged. May switch."""
        name, host = self.connection.name, self.connection.peer_host
        try:
            with self._deadline:
                connect = self._read_connect()
                return self._log_in(connect)
        except LoginEnd as end:
            self.server.strangers.warning(
                ("refused", host), "connection %s refused: %s", name, str(end)[:LOGGED_MAX])
            self._try_to_send(end.reply)
        except OSError as error:
            self.server.strangers.info(
                ("lost", host), "connection %s lost before it logged in: %s", name, error.strerror or error)
        return None

    def _read_connect(self):
        """Read the CONNECT; octets behind it stay in ``_octets``. Raises LoginEnd, OSError. May switch."""
        limits = PacketLimits(packet_octets=self._most_octets)
        try:
            while True:
                head = decode_fixed_header(self._octets, 0, len(self._octets), NO_VERSION, CLIENT, limits)
                if head is not None and head[2] <= len(self._octets):
                    packet = decode_packet(bytes(self._octets[:head[2]]), NO_VERSION, CLIENT, limits)
                    del self._octets[:head[2]]
                    return packet
                data = self._socket.recv(READ_OCTETS)
                if not data:
                    raise LoginEnd("the peer closed the socket before CONNECT")
                self._octets += data
        except MQTTError as error:
            raise LoginEnd(str(error), last_packet(error, NO_VERSION, connected=False)) from error

    def _log_in(self, connect):
        """Authenticate the client, find its vhost; return a Login. Raises LoginEnd, OSError. May switch."""
        if "authentication_method" in connect.properties:
            refusal = _connack(connect, reason_codes.BAD_AUTHENTICATION_METHOD)
            raise LoginEnd("CONNECT with an authentication method", refusal)
        try:
            vhost_name, user_name = self._named(connect)
            user = self._checked(connect, user_name)
            vhost = enter(
                self.broker, self.clients, user, vhost_name, DOOR, self.server.settings.mqtt_max_connections)
        except LoginRefused as error:
            raise LoginEnd(str(error), _connack(connect, connack_code(error, connect.version))) from error
        except Refused as error:
            raise LoginEnd(error.text, _connack(connect, connack_code(error, connect.version))) from error
        fault = client_id_fault(connect.client_identifier, user.name, self.server.settings)
        if fault:
            raise LoginEnd(fault, _connack(connect, client_id_code(connect.version)))
        if self.clients.is_closing:  # since the password was checked, which may switch
            raise LoginEnd("the broker stops")
        nameless = "EXTERNAL" if self._certified_name else "ANONYMOUS"
        mechanism = nameless if connect.user_name is None else "PLAIN"
        return Login(user, vhost, connect, bytes(self._octets), mechanism)

    def _checked(self, connect, user_name):
        """The User, after the password check; emits a login event. Raises LoginRefused. May switch."""
        protocol = VERSION_NAMES[connect.version]
        # None: a certificate, or nothing, takes the password's place
        password = None if connect.user_name is None else connect.password or b""
        # set no earlier: an address whose clients send no CONNECT is slow
        admitted = self.connection.admitted
        admitted.end_login = partial(gevent.kill, gevent.getcurrent())
        try:
            user = self.checked(user_name, password, self._deadline, protocol)
        finally:
            admitted.end_login = None
        self.tell("success", user_name, protocol)
        return user

    def _named(self, connect):
        """Return (vhost name, user name) from CONNECT's VHOST:USER or USER, or certificate. Raises
        AccessRefused.
        """
        name = connect.user_name
        if name is None:
            return self._usual_vhost(), self._certified_name or self._anonymous()
        vhost_name, colon, rest = name.rpartition(":")
        if colon and vhost_name in self.broker.vhosts and self.broker.users.get(name) is None:
            return vhost_name, rest
        return self._usual_vhost(), name

    def _usual_vhost(self):
        """The vhost for a client that names no vhost: by certificate, else by port, else the default."""
        # RabbitMQ's global parameters map certificates and ports; their values may be invalid.
        vhost_name = self.server.settings.mqtt_default_vhost
        keys = {PORTS_TO_VHOSTS: self._port(), CERTIFICATES_TO_VHOSTS: self._certified_name}
        for parameter, key in keys.items():
            found = self.broker.parameters.global_.get(parameter)
            if isinstance(found, dict) and isinstance(found.get(key), str):
                vhost_name = found[key]
        return vhost_name

    def _port(self):
        """The local port of the connection as text; "" for a unix socket."""
        address = self._socket.getsockname()
        return str(address[1]) if isinstance(address, tuple) else ""

    def _anonymous(self):
        """Name of the user whose rights a client without a user name gets. Raises AccessRefused."""
        name = self.server.settings.mqtt_anonymous_user
        if not name:
            raise AccessRefused("CONNECT without a user name")
        if self.broker.users.get(name) is None:
            raise AccessRefused(f"CONNECT without a user name, and anonymous_user '{name}' does not exist")
        return name

    def _try_to_send(self, octets):
        """Send a refusal, if the client still reads, then read its further octets. May switch."""
        # Unread octets would make the close a reset.
        if not octets:
            return
        try:
            sent = False
            with Timeout(self.timeout_s, False):
                self._socket.sendall(octets)
                sent = True
            if sent:
                self.server.hub.lingering.end(self._socket)
        except OSError as error:
            LOG.debug("connection %s: the refusal could not be sent: %s", self.connection.name, error)


def client_id_fault(client_id, user_name, settings):
    """Error text if a user may not use this client id, otherwise "". An empty id passes."""
    if len(client_id.encode()) > CLIENT_ID_OCTETS_MAX:
        return f"the client id has more than {CLIENT_ID_OCTETS_MAX} octets"
    if settings.mqtt_client_id_validation == "username" and client_id != user_name:
        return f"the client id of user '{user_name}' must be its name (mqtt client_id_validation)"
    return ""


def _connack(connect, code):
    """A refusing CONNACK; b"" if it is too large for the client. Session present is 0 (§3.2.2.1.1)."""
    return fitting(ConnackPacket(reason_code=code).encode(connect.version), connect.maximum_packet_size)


class Greeting:
    """The values requested by a CONNECT, limited by the settings; makes the CONNACK. ``expiry_s``: how long
    the session outlives the connection.
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
        """Keep alive in seconds. A 3.x client keeps the requested time, which CONNACK cannot change."""
        if self.version < MQTT_5 or not most_s or 0 < asked_s <= most_s:
            return asked_s
        self._properties["server_keep_alive"] = most_s  # [MQTT-3.1.2-21]
        return most_s

    def connack(self, session_present):
        packet = ConnackPacket(session_present=session_present, properties=self._properties)
        return packet.encode(self.version)


@lru_cache(maxsize=1)
def _packet_limits(most_octets, payload_octets):
    return PacketLimits(packet_octets=most_octets, payload_octets=payload_octets)
