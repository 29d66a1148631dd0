"""Doors: opens the broker's listeners, on addresses that it binds or on inherited sockets.

Used by gomq_py.node. Binds all listeners before it accepts a client: if a port is in use, none is served.
Holds the certificates, trusted proxies and socket options that a reload changes for new connections. Knows
the listeners and nothing of the protocols behind them. A *side door* is a listener of another protocol than
AMQP and MQTT: HTTP, HTTPS, metrics or the control socket.
"""
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gomq_py.config import control
from gomq_py.config.settings import Settings
from gomq_py.net.listener import BindError, Listener, bind_tcp, bind_unix
from gomq_py.net.proxy_protocol import Proxies
from gomq_py.net.socket_options import SocketOptions
from gomq_py.observability.log import logger

LOG = logger("boot")
AMQP, AMQPS, MQTT, MQTTS = "amqp", "amqps", "mqtt", "mqtts"
HTTP, HTTPS, METRICS, CONTROL = "http", "https", "metrics", "control"


class Served(NamedTuple):
    """Names of the settings of one protocol's listeners. ``tls``: name of the listener over TLS.
    ``is_needed``: True if the broker does not start when the port is in use. Otherwise it starts without this
    listener, unless the configuration names the port.
    """

    bind: str
    port: str
    tls: str
    tls_port: str
    unix_path: str
    unix_mode: str
    systemd_name: str
    is_needed: bool


# Protocols whose connections the broker's listeners keep; the caller of Doors supplies their handlers.
PROTOCOLS = {
    AMQP: Served(
        "amqp_bind", "amqp_port", AMQPS, "amqps_port", "amqp_unix_path", "amqp_unix_mode",
        "amqp_systemd_socket_name", True,
    ),
    MQTT: Served(
        "mqtt_bind", "mqtt_port", MQTTS, "mqtts_port", "mqtt_unix_path", "mqtt_unix_mode",
        "mqtt_systemd_socket_name", False,
    ),
}
# Side door -> (option of its address, option of its port).
SIDE_DOORS = {
    HTTP: ("http_bind", "http_port"), HTTPS: ("http_bind", "https_port"),
    METRICS: ("metrics_http_bind", "metrics_http_port"),
}
# Listeners to which followers pass their clients on. The others are about one node, or ask for no login.
FORWARDED = frozenset((AMQP, AMQPS, MQTT, MQTTS, HTTP, HTTPS))
# Modes of the unix sockets: the management API asks for a login, gomq-py-ctl's lets its owner do everything.
HTTP_UNIX_MODE, CONTROL_UNIX_MODE = 0o660, 0o600
# Prefix of a [sni:HOST] key that is for one protocol's port only.
SNI_PROTOCOLS = {AMQPS: "amqp", MQTTS: "mqtt", HTTPS: "http"}


def is_wanted(protocol: str, settings: Settings, inherited: Sequence[tuple[str, Any]] = ()) -> bool:
    """Return True if a setting or an inherited socket requires a listener of this protocol."""
    served = PROTOCOLS[protocol]
    names = {name for name, _ in inherited}
    return bool(
        getattr(settings, served.port) >= 0 or getattr(settings, served.unix_path)
        or settings.tls_cert and getattr(settings, served.tls_port) >= 0
        or names & {getattr(settings, served.systemd_name), served.tls}
    )


class Doors:
    """The listeners of one broker. ``listeners``: the open ones. ``options``: SocketOptions of clients."""

    def __init__(
        self, settings: Settings, handlers: dict[str, tuple[Callable[..., Any], Any, bool]],
        make_side_door: Callable[[str, Any, Any], Any], turns: Any,
        inherited: Sequence[tuple[str, Any]] = (),
        forward: Callable[[str], Callable[..., Any]] | None = None,
    ):
        """Take the parts that serve each listener:

            handlers             {protocol of PROTOCOLS: (function that serves a socket, admission gate,
                                 True if that function never switches greenlets)}
            make_side_door(protocol, socket, tls)
                                 returns the listener of any other protocol; ``tls``: a Handshaker or None
            turns                schedules TLS handshakes (hub.turns)
            inherited            (name, listening socket) pairs
            forward(listener)    for a follower: returns the function that serves the listener's clients
                                 instead of ``handlers``; TLS then ends at the leader
        """
        self._settings = settings
        self._handlers = handlers
        self._make_side_door = make_side_door
        self._turns = turns
        self._inherited = list(inherited)
        self._forward = forward
        self._proxies = Proxies()
        self.options = SocketOptions()
        self._handshakers: dict[str, Any] = {}
        self.listeners: list[Any] = []
        # Ports of PROTOCOLS bound here, with the arguments of _serve(); and the suspended ports.
        self._ports: list[tuple[Listener, tuple[str, str, Any]]] = []
        self._suspended: list[tuple[int, tuple[str, str, Any]]] = []

    def open(self) -> None:
        """Bind all listeners, then accept clients. Raises BindError, TLSError: the caller must ``close``."""
        settings = self._settings
        self._apply_options(settings)
        contexts = self.prepare(settings, self._tls_ports())
        for protocol in self._handlers:
            self._open_protocol(protocol, contexts)
        for protocol in (HTTP, HTTPS, METRICS):
            self._open_side_door(
                protocol, self._handshaker(protocol, contexts) if protocol in contexts else None
            )
        if settings.http_unix_path:
            bound = bind_unix(settings.http_unix_path, settings.listen_backlog, HTTP_UNIX_MODE)
            self.listeners.append(self._make_side_door(HTTP, bound, None))
        self._open_control()
        for name, listening in self._inherited:
            LOG.warning(
                "the service manager handed over a socket named %r on %s, which nobody serves", name,
                listening.getsockname(),
            )
            listening.close()
        self._inherited = []
        for listener in self.listeners:
            listener.start()
            LOG.info("listening %s %s", listener.protocol, listener.address)

    def close(self) -> None:
        """Close the listeners. Connections stay open. May be called twice. May switch greenlets."""
        for listener in self.listeners:
            listener.close()
        for _, listening in self._inherited:
            listening.close()
        self.listeners, self._inherited, self._ports, self._suspended = [], [], [], []

    def suspend(self) -> None:
        """Close the ports of PROTOCOLS until resume(), except inherited ones. Connections stay open. May
        switch greenlets.
        """
        ports, self._ports = self._ports, []
        for listener, arguments in ports:
            self.listeners.remove(listener)
            self._suspended.append((listener.port, arguments))
            listener.close()

    def resume(self) -> None:
        """Open the suspended ports. Raises BindError if some are in use, which then stay suspended."""
        settings, error = self._settings, None
        suspended, self._suspended = self._suspended, []
        for port, arguments in suspended:
            bind = getattr(settings, PROTOCOLS[arguments[0]].bind)
            try:
                bound = bind_tcp(bind, port, settings.listen_backlog, settings.reuse_port)
            except BindError as why:
                self._suspended.append((port, arguments))
                error = error or why
                continue
            self._serve(bound, *arguments)
            self.listeners[-1].start()
        if error is not None:
            raise error

    def find(self, name: str) -> Any:
        """Return the open TCP listener ``name``, if in FORWARDED, to ``adopt`` a client; else None."""
        if name not in FORWARDED:
            return None
        return next((one for one in self.listeners if one.protocol == name and one.port), None)

    # changing what is open

    def prepare(self, settings: Settings, ports: Sequence[str] | None = None) -> dict[str, Any]:
        """Return {port's name: TLS contexts} for new ``settings``, to be given to apply(). ``ports``: the
        names, such as "amqps"; None: those now open with TLS. Raises TLSError. Reads files, so it may run in
        a thread.
        """
        # A first certificate opens its ports at the next start: it must not fail then.
        is_first = ports is None and settings.tls_cert and not self._settings.tls_cert
        ports = list(self._handshakers) if ports is None else ports
        if not settings.tls_cert or not (ports or is_first):
            return {}
        # imported here: a broker without certificate needs no TLS library
        from gomq_py.net import tls
        if is_first:
            tls.contexts_of(settings, "")
        return {port: tls.contexts_of(settings, SNI_PROTOCOLS[port]) for port in ports}

    def apply(self, settings: Settings, contexts: dict[str, Any]) -> None:
        """Use the settings for new connections. ``contexts``: what ``prepare`` returned for them."""
        for port, found in contexts.items():
            self._handshakers[port].replace(found, settings.login_timeout)
        self._apply_options(settings)

    def _apply_options(self, settings: Settings) -> None:
        self._proxies.update(
            bool(settings.tcp_proxy_protocol), settings.proxy_protocol_trusted_sources, settings.login_timeout
        )
        self.options.update(
            settings.tcp_nodelay, settings.tcp_keepalive, settings.tcp_recv_buffer_size,
            settings.tcp_send_buffer_size)

    # opening

    def _tls_ports(self) -> list[str]:
        """Return the names of the ports that need a certificate, [] without tls_cert. Raises BindError for an
        inherited TLS socket without tls_cert.
        """
        settings = self._settings
        names = {name for name, _ in self._inherited}
        served = [PROTOCOLS[protocol] for protocol in self._handlers]
        ports = {one.tls: getattr(settings, one.tls_port) for one in served}
        ports[HTTPS] = settings.https_port
        if not settings.tls_cert:
            for name in ports:
                if name in names:
                    raise BindError(
                        f"the service manager handed over a socket for {name}, but there is no tls_cert"
                    )
            if settings.sni:
                LOG.warning("the [sni:HOST] sections have no effect without tls_cert")
            return []
        return [port for port, number in ports.items() if number >= 0 or port in names]

    def _handshaker(self, port: str, contexts: dict[str, Any]) -> Any:
        from gomq_py.net import tls
        self._handshakers[port] = tls.Handshaker(
            contexts[port], self._settings.login_timeout, self._turns)
        return self._handshakers[port]

    def _open_protocol(self, protocol: str, contexts: dict[str, Any]) -> None:
        settings, served = self._settings, PROTOCOLS[protocol]
        self._open_port(protocol, protocol, served.port)
        if served.tls in contexts:
            self._open_port(protocol, served.tls, served.tls_port, self._handshaker(served.tls, contexts))
        path = getattr(settings, served.unix_path)
        if path:
            bound = bind_unix(path, settings.listen_backlog, getattr(settings, served.unix_mode))
            self._serve(bound, protocol, protocol)

    def _open_port(self, protocol: str, name: str, option: str, handshake: Any = None) -> None:
        served = PROTOCOLS[protocol]
        inherited = self._take_inherited(name)
        for listening in inherited:
            self._serve(listening, protocol, name, handshake, inherited=True)
        if not inherited:
            for bound in self._bind(served.bind, option, served.is_needed, self._settings.reuse_port):
                self._serve(bound, protocol, name, handshake)

    def _serve(
        self, listening: Any, protocol: str, name: str, handshake: Any = None, inherited: bool = False
    ) -> None:
        handle, gate, at_once = self._handlers[protocol]
        if self._forward is not None:
            handle, handshake = self._forward(name), None
        listener = Listener(
            listening, name, handle, self.options, handshake, self._proxies, inherited, gate, at_once)
        self.listeners.append(listener)
        if listener.port and not inherited:
            self._ports.append((listener, (protocol, name, handshake)))

    def _open_side_door(self, protocol: str, tls: Any) -> None:
        bind, port = SIDE_DOORS[protocol]
        found = self._take_inherited(protocol)
        if not found and (protocol != HTTPS or tls is not None):
            found = self._bind(bind, port)
        if protocol == HTTPS and self._forward is not None:
            handle = self._forward(HTTPS)
            self.listeners += [Listener(listening, HTTPS, handle, self.options) for listening in found]
            return
        self.listeners += [self._make_side_door(protocol, listening, tls) for listening in found]

    def _bind(
        self, address: str, option: str, is_needed: bool = False, reuse_port: bool = False
    ) -> list[Any]:
        """Return [listening socket]. ``address``, ``option``: names of the settings for address and port.
        [] if the port is -1, or is in use and neither needed nor configured. Raises BindError.
        """
        # Without it a second broker on the machine still serves AMQP.
        settings, port = self._settings, getattr(self._settings, option)
        if port < 0:
            return []
        try:
            return [bind_tcp(getattr(settings, address), port, settings.listen_backlog, reuse_port)]
        except BindError as error:
            if is_needed or option in settings.origins:
                raise
            LOG.warning("going on without %s: %s", option.replace("_", " "), error)
            return []

    def _open_control(self) -> None:
        # A failure ends the boot only if the configuration names the path. Without a named path, no socket is
        # opened if the management API is off.
        settings = self._settings
        path = settings.control_unix_path
        asked_for = "control_unix_path" in settings.origins and path != control.AUTO
        if not path or (settings.http_port < 0 and not asked_for):
            return
        if path == control.AUTO:
            path = control.path_to_serve(settings.data_dir)
        elif control.is_shared(os.path.dirname(os.path.abspath(path))):
            LOG.warning(
                "control_unix_path is %s, in a folder that other users write to: one of them may put a "
                "socket there first", path,
            )
        try:
            listening = bind_unix(path, settings.listen_backlog, CONTROL_UNIX_MODE)
        except BindError as error:
            if asked_for:
                raise
            LOG.warning(
                "going on without the control socket, so that gomq-py-ctl needs --uri to reach this broker "
                "and not another: %s", error,
            )
            return
        self.listeners.append(self._make_side_door(CONTROL, listening, None))

    def _take_inherited(self, protocol: str) -> list[Any]:
        """Remove and return the inherited sockets of a protocol, a list: there may be one per address."""
        options = {name: served.systemd_name for name, served in PROTOCOLS.items()}
        options[HTTP] = "http_systemd_socket_name"
        name = getattr(self._settings, options[protocol]) if protocol in options else protocol
        found = [listening for given, listening in self._inherited if given == name]
        self._inherited = [(given, listening) for given, listening in self._inherited if given != name]
        return found
