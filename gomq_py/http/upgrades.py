"""Turns connections of the management port into WebSockets for AMQP or MQTT.

    server > Upgrades.answer(request) > 101 > net.websocket.WebSocket > the protocol's own server

After the answer 101 the connection counts against its protocol's limits, not HTTP's, and is served like a
connection of the protocol's listener. The subprotocol selects the protocol; without a known subprotocol, the
path does. A refused request, such as that of another site's page, gets no 101.
"""
from functools import partial
from typing import Any, NamedTuple

import gevent
import orjson

from gomq_py.http.origins import is_of, login_address
from gomq_py.net.listener import format_address, host_of, serve, tell_why, unix_peer
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("http")
AMQP, MQTT = "amqp", "mqtt"
# Paths that mean MQTT without a subprotocol; all others mean AMQP, as in LavinMQ.
MQTT_PATHS = frozenset(("/mqtt", "/ws/mqtt"))
ANY_ORIGIN = "*"
# Above this number of lingering connections, one that was closed unused does not linger: no limit counts it.
LINGERING_MAX = 20


class UpgradeRefused(Exception):
    """A WebSocket is refused. ``status`` and ``headers`` are the HTTP answer's; the text is the reason."""

    def __init__(self, status, reason, headers=()):
        super().__init__(reason)
        self.status = status
        self.headers = list(headers)

    def application(self, environ, start_response):
        """Answer the request with this refusal, as a WSGI application."""
        word = self.status.partition(" ")[2].lower().replace(" ", "_")
        body = orjson.dumps({"error": word, "reason": str(self)})
        start_response(
            self.status,
            [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *self.headers])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


class Accepted(NamedTuple):
    """An accepted WebSocket. ``octets`` is the answer 101, ``handle`` serves the protocol, ``gate`` limits
    its connections, ``host`` is the request's header Host.
    """

    protocol: str
    subprotocol: str | None
    handle: Any
    gate: Any
    connection: Any
    octets: bytes
    host: str


class Upgrades:
    """Turns connections of one broker's management ports into WebSockets."""

    def __init__(self, settings, serving, hub, options):
        """``serving(protocol)`` returns (handle, gate) of "amqp" or "mqtt". ``options``: a SocketOptions."""
        self._settings = settings
        self._serving = serving
        self._hub = hub
        self._options = options
        self._clients = hub.clients
        self._strangers = QuietLog(LOG)
        self._unix_peers = 0

    @staticmethod
    def is_asked_for(method, headers):
        """Return whether a request asks for a WebSocket. Other upgrades are ignored (RFC 9110 §7.8)."""
        return method == "GET" and headers.get("Upgrade", "").strip().lower() == "websocket"

    def answer(self, path, headers, version, host):
        """Return the Accepted for a request with the target ``path`` and these ``headers``. ``host`` is the
        client's IP address. Raises UpgradeRefused.
        """
        # imported here and below: few brokers see a WebSocket, 1 MB
        from h11 import ProtocolError
        from wsproto import ConnectionType, WSConnection
        from wsproto.events import AcceptConnection, RejectConnection
        from wsproto.utilities import RemoteProtocolError
        if version != "HTTP/1.1":
            raise UpgradeRefused("400 Bad Request", "a WebSocket begins with HTTP/1.1")
        if headers.get("Content-Length", "0").strip("0") or headers.get("Transfer-Encoding"):
            raise UpgradeRefused("400 Bad Request", "a request for a WebSocket has no body")
        self._check_origin(headers, host)
        connection = WSConnection(ConnectionType.SERVER)
        try:
            connection.initiate_upgrade_connection(
                [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
                path.encode("latin-1"))
            asked: Any = next(connection.events())
        except RemoteProtocolError as error:
            hint = error.event_hint if isinstance(error.event_hint, RejectConnection) else RejectConnection()
            status = "426 Upgrade Required" if hint.status_code == 426 else "400 Bad Request"
            shown = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in hint.headers]
            raise UpgradeRefused(status, str(error), shown) from error
        except (ProtocolError, ValueError) as error:
            raise UpgradeRefused("400 Bad Request", "the request for a WebSocket is malformed") from error
        protocol, subprotocol = chosen(asked.subprotocols, path.partition("?")[0])
        if not getattr(self._settings, f"{protocol}_websocket"):
            raise UpgradeRefused("403 Forbidden", f"[{protocol}] websocket is off")
        handle, gate = (None, None) if self._clients.is_closing else self._serving(protocol)
        if gate is None or not gate.has_room(host):
            raise UpgradeRefused("503 Service Unavailable", "there is no room for another login")
        octets = connection.send(AcceptConnection(subprotocol=subprotocol))
        return Accepted(protocol, subprotocol, handle, gate, connection, octets, headers.get("Host", ""))

    def begin(self, accepted, socket, address, rest):
        """Serve the protocol in a new greenlet that owns the socket. ``rest``: bytes after the request."""
        from gomq_py.net.websocket import WebSocket
        most = f"{'mqtt_' if accepted.protocol == MQTT else ''}max_octets_before_login"
        websocket = WebSocket(
            socket, accepted.connection, self._hub.slow_turns, lambda: self._clients.is_closing,
            getattr(self._settings, most), partial(accepted.gate.is_pending, socket.fileno()))
        if not isinstance(address, tuple):
            self._unix_peers += 1
            address = unix_peer(socket, self._unix_peers)
        websocket.login_host = login_address(
            host_of(address), accepted.host, self._settings.oauth_mgmt_base_url)
        greenlet = gevent.spawn(self._serve, accepted, websocket, socket, address, rest)
        greenlet.name = f"{accepted.protocol} websocket {format_address(address)}"

    def _serve(self, accepted, websocket, socket, address, rest):
        try:
            self._options.apply(socket)
            if rest:
                websocket.feed(rest)
            serve(accepted.handle, websocket, address)
            lingering = self._hub.lingering
            # The peer's Close is on its way, and would reset ours.
            if websocket.may_hear_more and (websocket.is_used or len(lingering) < LINGERING_MAX):
                lingering.end(websocket)
        except Exception as error:
            tell_why(error, accepted.protocol, address, self._strangers)
        finally:
            websocket.close()

    def _check_origin(self, headers, host):
        """Raise UpgradeRefused for a page that is neither of this host nor of a configured origin."""
        origins = headers.get_all("Origin", ())
        if not origins:  # programs send no Origin
            return
        allowed = [origin.lower().rstrip("/") for origin in self._settings.websocket_origins]
        if ANY_ORIGIN in allowed:
            return
        (origin, *others) = [origin.lower() for origin in origins]
        if others or origin not in allowed and not is_of(origin, headers.get("Host", "")):
            refused = f"a page of {origins[0][:200]} may not connect ([mgmt] websocket_origins)"
            # No browser shows the answer to the page's author.
            self._strangers.warning(
                ("origin", host), "WebSocket from %s refused: %s", host or "unix", refused)
            raise UpgradeRefused("403 Forbidden", refused)


def chosen(subprotocols, path):
    """Return ("amqp" or "mqtt", subprotocol or None), by the first known subprotocol, else by the path."""
    for subprotocol in subprotocols:
        for protocol in (MQTT, AMQP):
            if subprotocol.lower().startswith(protocol):
                return protocol, subprotocol
    return (MQTT if path.rstrip("/") in MQTT_PATHS else AMQP), None
