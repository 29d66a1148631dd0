"""Admission: limits the number of connections: in all, per address, and before login (pending connections).

A listener checks the limits before it serves a socket; a protocol's server reports logins. A connection
counts until its socket closes. A refused client gets a closed socket. Each protocol has a gate with its own
limits, so that a flood at one protocol keeps no client out of another. All gates share a limit of file
descriptors. Reads and writes no socket.

While too many connections are pending at a gate, new ones wait in the kernel. The address with the most
pending connections loses its oldest one, if that is ``PATIENCE_S`` old. So a reconnecting fleet is admitted
one by one. If the broker was waiting for the dropped client, the client's address counts as slow for
``SLOW_S``. Clients of other addresses replace the pending connections of a slow address at once. New
connections from a slow address are refused while the gate is full.

Leftovers returns memory to the system after many clients have left. Idle brokers have no timer.
"""
import fcntl
import functools
import resource
import socket
import struct
import termios
import time
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from gomq_py.hub.threads import in_thread
from gomq_py.observability.garbage import let_go_of_spares
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.observability.resources import give_memory_back

LOG = logger("listener")
# A login takes some milliseconds of the broker and three round trips.
PATIENCE_S = 2.0
# How long an address counts as slow.
SLOW_S = 60.0
NETWORKS = 4096
# A client that has not answered the broker's last octets for this long keeps the broker waiting. Clients that
# wait for a busy broker, or for the turn of their TLS handshake, have answered by then.
ANSWER_MS = 500
_UNREAD = struct.Struct("i")
# The beginning of Linux's tcp_info, up to the milliseconds since something was sent.
_LAST_SENT = struct.Struct("=44xI")
# The share of descriptors for connections; files need the rest, so that confirmed messages can be written.
DESCRIPTORS_SHARE = 0.75
# Memory is given back after so many clients have left: some 5 MB.
MANY = 500
# Memory is given back when no client has left for so long.
LULL_MS = 500


class AdmittedSocket:
    """One connection that Admission counts. ``host``: the client's address; empty for a unix socket.
    ``end_login``: None, or, while the login waits for something other than the socket, a function that ends
    the login. The function must not switch greenlets.
    """

    __slots__ = ("host", "since", "fileno", "identified", "end_login")

    def __init__(self, host: str, since: float, fileno: int):
        self.host = host
        self.since = since
        self.fileno = fileno
        self.identified = False
        self.end_login: Callable[[], None] | None = None

    def shut_down(self) -> None:
        """Shut the socket down and end its login. The code that serves the socket then closes it."""
        shut_down(self.fileno)
        end_login, self.end_login = self.end_login, None
        if end_login is not None:
            end_login()


class Admission:
    """Counts the client connections of all protocols, and makes a Gate for each protocol."""

    def __init__(
        self, settings: Any, clock: Callable[[], float] = time.monotonic, descriptors: int = 0,
        on_left: Callable[[], None] = lambda: None,
    ):
        """``settings``: has the limits that gate() names. ``on_left()``: called when a connection ends; must
        not switch greenlets. ``descriptors``: the process's limit of file descriptors; 0: read it from the
        system.
        """
        self.settings = settings
        self._on_left = on_left
        self.clock = clock
        self._most = int((descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[0]) * DESCRIPTORS_SHARE)
        self.log = QuietLog(LOG)
        self.admitted: dict[int, AdmittedSocket] = {}
        self._gates: dict[str, Gate] = {}
        self.is_closed = False

    def gate(self, prefix: str) -> "Gate":
        """Return the Gate of one protocol, which reads its limits from the settings at each new connection.
        Names begin with ``prefix`` (as "mqtt_"): max_connections_per_address and max_pending_logins.
        """
        if prefix not in self._gates:
            self._gates[prefix] = Gate(self, prefix)
        return self._gates[prefix]

    @property
    def count(self) -> int:
        """Number of client connections, logged in or not."""
        return len(self.admitted)

    @property
    def pending_count(self) -> int:
        """Number of connections, over all protocols, whose client has not logged in yet."""
        return sum(gate.pending_count for gate in self._gates.values())

    def add(self, fileno: int, host: str) -> AdmittedSocket | None:
        """Count an accepted socket, and return its AdmittedSocket. Returns None, and counts nothing, after
        close() or without a free file descriptor.
        """
        if self.is_closed:
            return None
        if len(self.admitted) >= self._most:
            self.log.warning(
                "descriptors",
                "connection from %s refused: there are %d, and the other descriptors are for files (ulimit "
                "-n)", host,
                len(self.admitted))
            return None
        admitted = self.admitted[fileno] = AdmittedSocket(host, self.clock(), fileno)
        return admitted

    def remove(self, admitted: AdmittedSocket) -> bool:
        """Stop counting a connection. Returns False if it was not counted."""
        if self.admitted.get(admitted.fileno) is not admitted:
            return False
        del self.admitted[admitted.fileno]
        self._on_left()
        return True

    def close(self) -> None:
        """Shut down the sockets of all connections, and refuse later connections."""
        self.is_closed = True
        for admitted in list(self.admitted.values()):
            admitted.shut_down()


class Gate:
    """Limits one protocol's connections by client address, and its pending connections (before login)."""

    def __init__(self, admission: Admission, prefix: str):
        self._admission = admission
        self._admitted = admission.admitted
        self._settings = admission.settings
        self._clock = admission.clock
        self._log = admission.log
        self._per_address = f"{prefix}max_connections_per_address"
        self._most_pending = f"{prefix}max_pending_logins"
        self._pending: dict[AdmittedSocket, None] = {}
        self._pending_of: dict[str, int] = {}  # by network
        self._slow: dict[str, float] = {}  # network: until when
        self._hosts: dict[str, int] = {}

    @property
    def pending_count(self) -> int:
        """Number of this protocol's connections whose client has not logged in yet."""
        return len(self._pending)

    def has_room(self, host: str) -> bool:
        """Return whether a connection from ``host`` may be accepted. If too many are pending, one that has
        been pending for long is shut down. Returns False if there is none to shut down.
        """
        return not self._is_full() or self._drop_the_slowest(network_of(host))

    def refuses(self, host: str) -> bool:
        """Return whether a connection from ``host`` must be refused instead of waiting: if too many are
        pending, and earlier clients of this address have kept the broker waiting.
        """
        return self._is_slow(host) and self._is_full()

    def enter(self, connection: Any, host: str) -> AdmittedSocket | None:
        """Count an accepted socket as pending, and return its AdmittedSocket. Returns None if the connection
        is refused; then the caller must close the socket.
        """
        if self._slow and self.refuses(host):
            self._log.warning(
                ("refused", network_of(host), self._most_pending),
                "connection from %s refused: as many as may wait for their login (%s), and others from there "
                "have been slow", host or "this machine", self._most_pending)
            return None
        admitted = self._admission.add(connection.fileno(), host)
        if admitted is not None:
            self._begin_pending(admitted, host)
        return admitted

    def identify(self, connection: Any, host: str) -> AdmittedSocket | None:
        """Count the connection under its client's address ``host``, which a proxy may have announced. Returns
        the AdmittedSocket, or None if the connection is refused; then the caller must close the socket.
        """
        # Calls enter() if no listener has called it for this socket. In that case the socket's owner must
        # call leave(); in the other case the listener calls leave().
        if self._admission.is_closed:
            return None
        limit = getattr(self._settings, self._per_address)
        if limit and self._hosts.get(host, 0) >= limit:
            self._log.warning(
                ("address", host, self._per_address), "connection from %s refused: it has %d already (%s)",
                host or "this machine", limit, self._per_address)
            return None
        admitted = self._admitted.get(connection.fileno()) or self.enter(connection, host)
        if admitted is not None and not admitted.identified:
            if admitted.host != host and self._end_pending(admitted):  # it came through a proxy
                self._begin_pending(admitted, host)
            admitted.host, admitted.identified = host, True
            self._hosts[host] = self._hosts.get(host, 0) + 1
        return admitted

    def logged_in(self, admitted: AdmittedSocket) -> None:
        """Stop counting the connection as pending, because its client has logged in."""
        self._end_pending(admitted)

    def is_pending(self, fileno: int) -> bool:
        """Whether the client of the connection with this file descriptor has not logged in yet."""
        return self._admitted.get(fileno) in self._pending

    def leave(self, admitted: AdmittedSocket) -> None:
        """Stop counting a connection whose socket is about to be closed. A second call does nothing."""
        if self._admission.remove(admitted) and admitted.identified:
            self._hosts[admitted.host] -= 1
            if not self._hosts[admitted.host]:
                del self._hosts[admitted.host]
        self._end_pending(admitted)

    def _begin_pending(self, admitted: AdmittedSocket, host: str) -> None:
        network = network_of(host)
        self._pending[admitted] = None
        self._pending_of[network] = self._pending_of.get(network, 0) + 1

    def _end_pending(self, admitted: AdmittedSocket) -> bool:
        """Stop counting the connection as pending. Returns False if it was not pending."""
        if self._pending.pop(admitted, self) is self:
            return False
        network = network_of(admitted.host)
        self._pending_of[network] -= 1
        if not self._pending_of[network]:
            del self._pending_of[network]
        return True

    def _is_full(self) -> bool:
        return len(self._pending) >= getattr(self._settings, self._most_pending)

    def _is_slow(self, host: str) -> bool:
        return self._slow.get(network_of(host), 0.0) > self._clock()

    def _drop_the_slowest(self, newcomer: str) -> bool:
        """Shut down the oldest pending connection of the address with the most pending connections.

        Returns False, without any effect, if that connection is younger than PATIENCE_S. But a connection of
        a slow address is shut down at any age if the address ``newcomer`` is not slow.
        """
        greediest = max(self._pending_of, key=self._pending_of.__getitem__)
        admitted = next(one for one in self._pending if network_of(one.host) == greediest)
        if self._clock() - admitted.since >= PATIENCE_S:
            if admitted.end_login is None and waits_for_client(admitted.fileno):
                self._slow.pop(greediest, None)
                self._slow[greediest] = self._clock() + SLOW_S
                if len(self._slow) > NETWORKS:
                    del self._slow[next(iter(self._slow))]
        elif not self._is_slow(greediest) or self._is_slow(newcomer):
            return False
        self._log.warning(
            ("slowest", greediest, self._most_pending),
            "%d connections wait for their login (%s), %d of them from %s: the oldest give way",
            len(self._pending), self._most_pending, self._pending_of[greediest], greediest or "this machine")
        self._end_pending(admitted)
        admitted.shut_down()
        return True


@functools.lru_cache(NETWORKS)
def network_of(address: str) -> str:
    """Return the network under which an address is counted, as text. This is the /64 of an IPv6 address, or
    an IPv4 address itself. Any other text is returned unchanged.
    """
    # One customer has a whole /64.
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped is not None else str(ip_network((parsed, 64), strict=False))
    return str(parsed)


def waits_for_client(fileno: int) -> bool:
    """Whether the broker waits for the client of this socket. True if the broker has read all that the client
    sent, and has sent nothing for ANSWER_MS. Also True if the kernel cannot tell.
    """
    # The kernel tells this, so that no delay of the broker is blamed on the client.
    try:
        if _UNREAD.unpack(fcntl.ioctl(fileno, termios.FIONREAD, bytes(_UNREAD.size)))[0]:
            return False
        borrowed = socket.socket(fileno=fileno)
        try:
            info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_SENT.size)
        finally:
            borrowed.detach()
    except (OSError, AttributeError):  # no TCP, or not Linux
        return True
    return bool(_LAST_SENT.unpack(info)[0] >= ANSWER_MS)


def shut_down(fileno: int, how: int = socket.SHUT_RDWR) -> None:
    """Shut down a socket that another greenlet serves. That greenlet stops waiting and closes the socket. For
    TLS, ``fileno`` is that of the TCP socket below.
    """
    borrowed = socket.socket(fileno=fileno)
    try:
        borrowed.shutdown(how)
    except OSError:
        pass  # it has ended by itself
    finally:
        borrowed.detach()


def give_back():
    """Give unused memory back to the system. Takes milliseconds, most of them in a thread. May switch
    greenlets.
    """
    let_go_of_spares()
    in_thread(give_memory_back)


class Leftovers:
    """Gives memory back to the system after many clients have disconnected. For that it calls
    ``begin_to_give_back()``, which must not switch greenlets.
    """

    # Otherwise small objects that the interpreter keeps for reuse, scattered among freed blocks, would each
    # keep an arena of 1 MiB in memory.
    def __init__(self, timers, endings, begin_to_give_back):
        self._timers = timers
        self._endings = endings
        self._begin_to_give_back = begin_to_give_back
        self._left = 0  # clients, since memory was given back
        self._seen = 0  # of these, at the last look
        self._timer = None

    def one_left(self):
        """Count a client that has disconnected."""
        self._left += 1
        if self._left >= MANY and self._timer is None:
            self._look_later()

    def _look_later(self):
        self._seen = self._left
        self._timer = self._timers.start(LULL_MS, self._look)

    def _look(self):
        self._timer = None
        if self._left > self._seen or self._endings.are_waiting():
            self._look_later()
        else:
            self._left = self._seen = 0
            self._begin_to_give_back()
