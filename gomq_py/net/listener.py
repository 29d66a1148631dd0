"""Listeners: accept connections, set socket options, and call a protocol's ``handle(socket, address)``.

If ``handle`` never switches greenlets, the event loop accepts. Otherwise a greenlet accepts, and one greenlet
per connection calls ``handle``. Listeners know no protocol, and never touch the data that a peer sends.
"""
import errno
import os
import posix
import stat
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event

from gomq_py.hub.admission import AdmittedSocket, Gate
from gomq_py.hub.loop_socket import LoopSocket
from gomq_py.hub.turns import give_way
from gomq_py.net.proxy_protocol import Proxies, ProxyProtocolError
from gomq_py.net.socket_options import SocketOptions
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("listener")
# Errors of accept() that do not concern the listener: the peer has gone again, or descriptors or buffers are
# short.
_PEER_GONE = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Pause between two tries without descriptors; connections wait in the backlog meanwhile.
EXHAUSTED_PAUSE_S = 0.1
# accept() does not switch while connections wait: after this many in a row other work has its turn, so that a
# flood of connects delays it by a few milliseconds at most.
ACCEPTS_PER_TURN = 32
# Unsent octets that the system keeps for a peer. Its default is 4 MB, and the writer hears that the peer is
# behind after 40 000 small messages.
UNSENT_OCTETS = 128 * 1024
# Longest segments over TLS: a full record. The loopback interface's are 64 KiB, and if a slow peer has room
# for less than one, both ends may wait 0.2 s until the system looks again: Linux reports more room only when
# it has doubled. Other interfaces have shorter segments.
TLS_SEGMENT_OCTETS = 16384
# Pause between two looks for room for another login.
FULL_PAUSE_S = 0.02
READABLE = 1
# In place of the revision of options that an accepted socket has inherited; an adopted one has none.
NOTHING = -1

# Serves a client. May return ``when_gone``: the listener calls it with a callback and its arguments for the
# client's end, and the client is served without a greenlet.
WhenGone = Callable[..., None]
Handle = Callable[[Any, Any], WhenGone | None]
Handshake = Callable[[Any], Any]


class BindError(Exception):
    """The broker cannot listen on an address. The error's text is one line for the operator."""


def bind_tcp(host: str, port: int, backlog: int, reuse_port: bool = False) -> Any:
    """Return a listening TCP socket. With ``port`` 0 the system chooses a free port; ``::`` also accepts
    IPv4. Raises BindError. May switch greenlets.
    """
    try:
        family, address = _resolved(host, port)
    except OSError as error:
        raise BindError(f"cannot listen on {host}: {error.strerror}") from error
    except UnicodeError as error:  # a label of a name that is empty or too long
        raise BindError(f"cannot listen on {host}: this is no host name") from error
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        keep_little_unsent(listening)
        listening.bind(address)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise BindError(_why_not(host, port, error)) from error
    return listening


def keep_little_unsent(listening: Any) -> None:
    """Limit the kernel to UNSENT_OCTETS unsent bytes per accepted socket, if it can."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_OCTETS)


def keep_segments_short(listening: Any) -> None:
    """Limit TCP segments of sockets accepted here to TLS_SEGMENT_OCTETS bytes both ways, if possible."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):  # some kernels cannot for MPTCP, which an inherited socket may speak
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, TLS_SEGMENT_OCTETS)


def _resolved(host: str, port: int) -> tuple[int, Any]:
    """Return (address family, address) for bind(). May switch greenlets."""
    # A numeric address is parsed here: the resolver would take a thread and 0.5 MB of tables.
    try:
        parsed = ip_address(host)
    except ValueError:
        parsed = None
    if isinstance(parsed, IPv4Address):
        return socket.AF_INET, (host, port)
    if parsed is not None and parsed.scope_id is None:
        return socket.AF_INET6, (host, port, 0, 0)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return found[0], found[4]


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use: stop what listens there (ss -ltnp sport = :{port}) or choose "
            "another port"
        )
    if error.errno == errno.EACCES:
        return (
            f"port {port} on {host} is not allowed for this user: ports below 1024 need root or "
            "CAP_NET_BIND_SERVICE"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine"
    return f"cannot listen on {host} port {port}: {error.strerror}"


def bind_unix(path: str, backlog: int, mode: int = 0o660) -> Any:
    """Return a listening unix socket at ``path`` with permissions ``mode``. Replaces a socket left by a dead
    process. Raises BindError.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        listening.bind(path)
        # Nobody can connect before listen(), whatever the mode is; a umask would hold for all threads.
        os.chmod(path, mode)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise BindError(f"cannot listen on {path}: {error.strerror or error}") from error
    return listening


def _remove_stale(path: str) -> None:
    """Unlink the socket that a killed broker left at ``path``. Raises OSError if a process answers there."""
    # A file that is no socket stays, and bind() then fails.
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    else:
        raise OSError(errno.EADDRINUSE, "another process listens there")
    finally:
        probe.close()


class Listener:
    """Accepts connections on one listening socket until close()."""

    def __init__(
        self, listening: Any, protocol: str, handle: Handle, options: SocketOptions,
        handshake: Handshake | None = None, proxies: Proxies | None = None, inherited: bool = False,
        gate: Gate | None = None, at_once: bool = False,
    ):
        """``listening``: a bound and listening socket, which the Listener owns.

            handshake    makes an accepted socket a TLS socket
            proxies      finds the client's address
            inherited    another process made the socket and removes its path
            gate         admits connections (hub.admission)
            at_once      ``handle`` does not switch greenlets
        """
        self.protocol = protocol
        self._proxies = proxies
        self._gate = gate
        self._strangers = QuietLog(LOG)
        self._handshake = handshake
        self._socket = listening
        self._handle = handle
        self._options = options
        self._at_once = at_once and handshake is None
        self._inherited = self._will_inherit = 0
        self._greenlet: Any = None
        self._watcher: Any = None
        self._needed = Event()
        self._gone = self._leave  # one object for all connections
        self._waits_for_room: tuple[Any, Any] | None = None
        self._accepted = 0
        self._name = listening.getsockname()
        self._family = int(listening.family)
        self._is_unix = listening.family == socket.AF_UNIX
        self._path_id = path_id(self._name) if isinstance(self._name, str) and not inherited else None
        if inherited and not self._is_unix:
            keep_little_unsent(listening)
        if handshake is not None and not self._is_unix:
            keep_segments_short(listening)
        self.address = format_address(self._name)
        """HOST:PORT, [HOST]:PORT or the path of a unix socket."""
        self.port = self._name[1] if isinstance(self._name, tuple) else 0
        """The TCP port, also when 0 was asked for; 0 for a unix socket."""

    def start(self) -> None:
        self._will_inherit = self._options.apply_to_listener(self._socket)
        # Earlier connections have the socket's earlier options: accept() tells when no such one is left.
        self._socket.settimeout(0.0)
        if self._at_once:
            self._watcher = gevent.get_hub().loop.io(self._socket.fileno(), READABLE)
        self._greenlet = gevent.spawn(self._accept_forever)
        self._greenlet.name = f"listener {self.protocol} {self.address}"

    def close(self) -> None:
        """Stop accepting, and free the address. Accepted connections go on. May be called twice. May switch
        greenlets.
        """
        if self._greenlet is not None:
            self._greenlet.kill()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        if self._waits_for_room is not None:
            self._waits_for_room[0].close()
            self._waits_for_room = None
        self._socket.close()
        if self._path_id is not None:
            remove_path(self._name, self._path_id)
            self._path_id = None

    def has_room_for(self, address: Any) -> bool:
        """Return False if a client accepted by another node must wait, as too many are not logged in yet."""
        return self._socket.fileno() < 0 or not self._must_wait(host_of(address))

    def adopt(self, family: int, descriptor: int, address: Any) -> None:
        """Serve a client that another node has accepted, as if the client had connected here.
        ``descriptor``: a connected socket's. The Listener then owns it; a closed Listener closes it.
        """
        connection: Any = (
            LoopSocket(family, descriptor) if self._at_once
            else socket.socket(family, socket.SOCK_STREAM, 0, fileno=descriptor))
        if self._socket.fileno() < 0:
            connection.close()
        else:
            self._let_in(connection, address, host_of(address), is_adopted=True)

    def abandon(self) -> None:
        """In a forked child: close the child's copy of the listening socket. The parent goes on accepting."""
        abandon_socket(self._socket)

    def _accept_forever(self) -> None:
        in_a_row, exhausted = 0, False
        while True:
            in_a_row += 1
            if in_a_row >= ACCEPTS_PER_TURN:
                in_a_row = 0
                give_way()
            try:
                connection, address = self._accept()
            except BlockingIOError:
                self._inherited = self._will_inherit
                self._wait_for_more()
                continue
            except OSError as error:
                if error.errno in _PEER_GONE:
                    continue
                if error.errno not in _EXHAUSTED:
                    LOG.error("%s listener on %s stopped: %s", self.protocol, self.address, error)
                    return
                if not exhausted:
                    LOG.error(
                        "cannot accept %s connections: %s; they wait until others close", self.protocol,
                        error.strerror,
                    )
                exhausted = True
                gevent.sleep(EXHAUSTED_PAUSE_S)
                continue
            exhausted = False
            self._waits_for_room = connection, address
            host = host_of(address)
            while self._must_wait(host):  # later connections wait in the kernel
                gevent.sleep(FULL_PAUSE_S)
            self._waits_for_room = None
            self._let_in(connection, address, host)

    def _must_wait(self, host: str) -> bool:
        """Return True if the gate has no room for a connection from ``host``, but does not refuse it."""
        gate = self._gate
        return gate is not None and not gate.has_room(host) and not gate.refuses(host)

    def _let_in(self, connection: Any, address: Any, host: str, is_adopted: bool = False) -> None:
        """Serve an accepted connection, or close it if the gate refuses it."""
        if self._is_unix and not is_adopted:
            self._accepted += 1
            address = unix_peer(connection, self._accepted)
        admitted = None
        if self._gate is not None:
            admitted = self._gate.enter(connection, host)
            if admitted is None:
                connection.close()
                return
        inherited = NOTHING if is_adopted else self._inherited
        if type(connection) is LoopSocket:
            try:
                self._serve(connection, address, admitted, inherited)
            except Exception:  # the loop goes on accepting
                LOG.exception(
                    "%s connection from %s ended by a fault of the broker", self.protocol,
                    format_address(address))
        else:
            greenlet = gevent.spawn(self._serve, connection, address, admitted, inherited)
            greenlet.name = f"{self.protocol} {format_address(address)}"

    def _accept(self) -> tuple[Any, Any]:
        """Return (socket, address) of the next client. Raises OSError; BlockingIOError if no client waits and
        the call may not wait. Without ``at_once`` it may switch greenlets.
        """
        if not self._at_once:
            return self._socket.accept()
        waiting, self._waits_for_room = self._waits_for_room, None
        return waiting or self._accept_plain()

    def _accept_plain(self) -> tuple[Any, Any]:
        """Return (socket, address) of the next client without waiting. Raises OSError."""
        # A LoopSocket, or gevent's socket if a proxy may first announce the client's address.
        descriptor, address = self._socket._sock._accept()
        if self._proxies is None or not self._proxies.may_announce(address):
            return LoopSocket(self._family, descriptor), address
        return socket.socket(self._family, socket.SOCK_STREAM, 0, fileno=descriptor), address

    def _wait_for_more(self) -> None:
        """Let the event loop accept until it leaves a connection or an error to this greenlet. Without
        ``at_once`` return, and let the next accept() wait instead. May switch greenlets.
        """
        if self._watcher is None:
            self._socket.settimeout(None)
            return
        self._needed.clear()
        self._watcher.start(self._accept_in_loop)
        self._needed.wait()

    def _accept_in_loop(self) -> None:
        # Waking a greenlet for each was a tenth of a login's cost. The greenlet handles only errors and
        # connections that must wait for room.
        gate = self._gate
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, address = self._accept_plain()
            except BlockingIOError:
                return
            except OSError:  # the greenlet gets the error again, unless it was this peer's alone
                self._leave_to_greenlet()
                return
            host = host_of(address)
            if self._must_wait(host):
                self._waits_for_room = connection, address
                self._leave_to_greenlet()
                return
            self._let_in(connection, address, host)
            if gate is not None and gate.pending_count < 2:
                return  # hardly any more have come; the loop tells at its next poll

    def _leave_to_greenlet(self) -> None:
        self._watcher.stop()
        self._needed.set()

    def _serve(
        self, connection: Any, address: Any, admitted: AdmittedSocket | None, inherited: int,
    ) -> None:
        when_gone, accepted_from = None, address
        try:
            self._options.apply(connection, inherited)
            # the peer of a LoopSocket announces nothing, and a node has announced its client before
            if self._proxies is not None and type(connection) is not LoopSocket and inherited != NOTHING:
                address = self._proxies.client_of(connection, address)
            if self._handshake is not None:
                connection = self._handshake(connection)
            when_gone = self._handle(connection, address)
        except Exception as error:
            tell_why(error, self.protocol, accepted_from, self._strangers)
        finally:
            if when_gone is None:
                self._leave(connection, admitted)
        if when_gone is not None:
            when_gone(self._gone, connection, admitted)

    def _leave(self, connection: Any, admitted: AdmittedSocket | None) -> None:
        if self._gate is not None and admitted is not None:
            self._gate.leave(admitted)
        connection.close()


def serve(handle: Handle, connection: Any, address: Any) -> None:
    """Call ``handle(connection, address)``, and return when the client is gone. May switch greenlets."""
    when_gone = handle(connection, address)
    if when_gone is not None:
        gone = Event()
        when_gone(gone.set)
        gone.wait()


def tell_why(error: Exception, protocol: str, address: Any, strangers: QuietLog) -> None:
    """Log the error that ended a connection. ``strangers``: rate-limited log for errors that peers cause."""
    peer = format_address(address)
    if isinstance(error, ProxyProtocolError):
        strangers.warning(
            ("proxy", host_of(address)), "%s connection from %s refused: %s", protocol, peer, error)
    elif isinstance(error, OSError):
        strangers.info(
            ("lost", host_of(address)), "%s connection from %s lost: %s", protocol, peer,
            error.strerror or error)
    else:
        LOG.error("%s connection from %s ended by a fault of the broker", protocol, peer, exc_info=error)


def path_id(path: str) -> tuple[int, int] | None:
    """Return (device, inode), which identify the file at ``path``; None if the file is missing."""
    # A socket in the abstract namespace has none.
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def remove_path(path: str, identity: Any) -> None:
    """Unlink the socket at ``path``, unless another file replaced it. ``identity``: its earlier path_id()."""
    if path_id(path) == identity:
        os.unlink(path)


def unix_peer(connection: Any, number: int) -> str:
    """Return a name for a client of a unix socket, in place of an address: "unix:PROCESS:NUMBER"."""
    return f"unix:{_peer_process(connection)}:{number}"


def _peer_process(connection: Any) -> int:
    """Return the process id of a unix socket's client; 0 if the client is in another container."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def abandon_socket(connection: Any) -> None:
    """In a forked child: close the child's copy of a socket, without telling the peer."""
    # The loop is not touched, because parent and child share its kernel state.
    descriptor = getattr(connection, "_sock", connection).detach()
    if descriptor >= 0:
        posix.close(descriptor)


def host_of(address: Any) -> str:
    """Return the host part of a socket address; empty for a unix socket."""
    return address[0].removeprefix("::ffff:") if isinstance(address, tuple) else ""


def login_host(connection: Any, host: str) -> str:
    """Return the address to attribute a client's logins to: its WebSocket's ``login_host``, else ``host``."""
    given = getattr(connection, "login_host", None)
    return host if given is None else given


def format_address(address: Any) -> str:
    """Return an address as text, "10.0.0.1:5672" or "[::1]:5672". Shows IPv4 addresses in IPv6 as IPv4."""
    if not isinstance(address, tuple):
        return str(address or "unix")
    host, port = address[0].removeprefix("::ffff:"), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# Cached for local addresses, of which there are few.
format_own = lru_cache(64)(format_address)
