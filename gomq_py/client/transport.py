"""Transport: reads, writes and waits for a non-blocking socket, plain or TLS.

All input and output of the client's connections goes through this module. The socket module is a parameter:
with ``gevent.socket`` a wait switches greenlets, with the standard library's ``socket`` it blocks the thread.
The select and ssl modules come from the same package.
"""
import time
from importlib import import_module
from typing import Any

# Value of server_name_indication: no name is sent, and any name in the certificate is accepted, as in
# RabbitMQ.
NO_NAME = "disable"
# First bytes of a TLS server's answer to plain text: an alert of TLS 1.x or SSL 3.
TLS_ALERT = b"\x15\x03"
# OpenSSL's X509_V_ERR_CERT_CHAIN_TOO_LONG.
CHAIN_TOO_LONG = 22


class Transport:
    """A non-blocking socket to one peer, plain or TLS. Only ``connect`` and ``wait`` may block."""

    def __init__(self, socket_module: Any) -> None:
        self._socket_module = socket_module
        self._select = _sibling(socket_module, "select")
        self._would_block: tuple = (BlockingIOError, InterruptedError)
        self._tls = False
        self.socket: Any = None

    def connect(
        self, parameters: Any, timeout_s: float | None, given_context: Any = None, connected: Any = None,
    ) -> None:
        """Connect, with a TLS handshake if ``parameters`` require TLS. Raises OSError. May switch greenlets.

        ``given_context``: an SSLContext to use instead of one made from ``parameters``. ``connected``: a
        connected socket of the same socket module to use instead of a new one; the Transport then owns it.
        """
        module = self._socket_module
        sock = self.socket = connected
        if sock is None:
            sock = module.create_connection((parameters.host, parameters.port), timeout=timeout_s)
        else:
            sock.settimeout(timeout_s)
        if sock.family in (module.AF_INET, module.AF_INET6):
            sock.setsockopt(module.IPPROTO_TCP, module.TCP_NODELAY, 1)
        if parameters.tls:
            ssl = _sibling(self._socket_module, "ssl")
            self._tls = True
            self._would_block += (ssl.SSLWantReadError, ssl.SSLWantWriteError)
            context = given_context or tls_context(ssl, parameters.options)
            sock = handshake(ssl, sock, context, parameters.host, parameters.options, timeout_s)
        sock.settimeout(0)
        self.socket = sock

    def release(self) -> Any:
        """Give up the socket and return it. The caller then owns it."""
        sock, self.socket = self.socket, None
        return sock

    def send(self, octets: bytes | memoryview) -> int:
        """Send as many bytes as the socket takes at once. Returns their count, perhaps 0. Raises OSError."""
        try:
            return self.socket.send(octets)
        except self._would_block:
            return 0

    def receive(self, count: int = 65536) -> bytes | None:
        """Return up to ``count`` bytes; None if none are there, b"" if the peer closed. Raises OSError."""
        try:
            return self.socket.recv(count)
        except self._would_block:
            return None

    def wait(self, timeout_s: float | None, writable: bool = False) -> bool:
        """Wait until the socket is readable or, with ``writable``, readable or writable. Returns False after
        ``timeout_s`` seconds (None: no limit). May switch greenlets.
        """
        if not writable and self.holds_octets():
            return True
        events = self._select.POLLIN | (self._select.POLLOUT if writable else 0)
        return _is_ready(self._select, self.socket, events, timeout_s)

    def holds_octets(self) -> bool:
        """Return whether TLS holds received bytes that poll() does not report."""
        return self._tls and self.socket.pending() > 0

    def close(self) -> None:
        """Close the socket. A second call does nothing."""
        if self.socket is not None:
            self.socket.close()


def _sibling(module, name):
    """Import ``name`` (say, "select") from the package of ``module`` (say, gevent.socket)."""
    package = module.__name__.rpartition(".")[0]
    return import_module(f"{package}.{name}" if package else name)


def _is_ready(select, sock, events, timeout_s):
    """Wait until one of the poll ``events`` occurs. Returns False after ``timeout_s`` seconds (None: no
    limit). May switch greenlets.
    """
    poll = select.poll()
    poll.register(sock.fileno(), events)
    return bool(poll.poll(None if timeout_s is None else max(0, timeout_s) * 1000))


def handshake(
    ssl: Any, connected: Any, context: Any, host: str, options: dict[str, Any], timeout_s: float | None,
) -> Any:
    """Do a TLS handshake over a connected socket, and return the TLS socket. Raises OSError. May switch
    greenlets.

    ``context``: the SSLContext. ``options``: the URL's; only server_name_indication and depth are used.
    ``timeout_s``: limits the whole handshake; None: no limit.
    """
    name = options.get("server_name_indication", host)
    connected.settimeout(0)
    wrapped = context.wrap_socket(
        connected, server_hostname=None if name == NO_NAME else name, do_handshake_on_connect=False)
    try:
        _shake_hands(ssl, wrapped, timeout_s)
        depth = options.get("depth")
        if depth is not None and context.verify_mode != ssl.CERT_NONE:
            _check_depth(ssl, wrapped, depth)
    except BaseException:
        wrapped.close()
        raise
    wrapped.settimeout(timeout_s)
    return wrapped


def _shake_hands(ssl, wrapped, timeout_s):
    """Do the TLS handshake. Raises TimeoutError if it takes longer than ``timeout_s`` in all."""
    # The ssl module's own limit restarts with each byte.
    select = _sibling(ssl, "select")
    until = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            wrapped.do_handshake()
            return
        except ssl.SSLWantReadError:
            events = select.POLLIN
        except ssl.SSLWantWriteError:
            events = select.POLLOUT
        left_s = None if until is None else until - time.monotonic()
        if left_s is not None and left_s <= 0 or not _is_ready(select, wrapped, events, left_s):
            raise TimeoutError(f"the TLS handshake did not end within {timeout_s:g} s")


def _check_depth(ssl, wrapped, depth):
    """Raise SSLCertVerificationError if the peer's chain has more than ``depth`` intermediate certificates.
    The ssl module has no setting for this limit.
    """
    between = len(wrapped._sslobj.get_verified_chain()) - 2
    if between > depth:
        error = ssl.SSLCertVerificationError(f"certificate chain too long: {between}, and depth is {depth}")
        error.verify_code, error.verify_message = CHAIN_TOO_LONG, error.args[0]
        raise error


def tls_context(ssl: Any, options: dict[str, Any]) -> Any:
    """Return an SSLContext for the ``options`` of a URL. Blocks the thread while it reads certificate files.
    Raises OSError. ``ssl``: the standard library's module or gevent's.
    """
    # Not create_default_context(): gevent's returns one of the standard library, whose handshake would block
    # the hub.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if options.get("cacertfile"):
        context.load_verify_locations(options["cacertfile"])
    else:
        context.load_default_certs()
    if options.get("server_name_indication") == NO_NAME:
        context.check_hostname = False
    if options.get("verify") == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.get("certfile"):
        context.load_cert_chain(options["certfile"], options.get("keyfile"), options.get("password"))
    return context
