"""Forwarding: a follower passes its clients on to the leader.

Each client gets its own connection to the leader's cluster port. The connection logs in with FORWARD, which
contains the client's address, and then carries the client's bytes unchanged. TLS ends at the leader, and no
data of the client is kept here. ``cluster.adoption`` is the leader's side.
"""
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import Semaphore

from gomq_py.cluster.identity import Identity
from gomq_py.cluster.link import connect
from gomq_py.cluster.login import ForwarderLogin, LoginRefused
from gomq_py.cluster.wire import frames
from gomq_py.cluster.wire.frames import FrameError, FrameReader
from gomq_py.cluster.wire.messages import MessageError
from gomq_py.net.listener import format_address, host_of, serve
from gomq_py.net.proxy_protocol import header_of
from gomq_py.net.pump import Pumps
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("cluster")
# Longest wait of a new client for a leader; then its connection is closed.
WAIT_S = 5.0
# Time for one connection and login, so that a leader whose machine is lost does not use up the wait.
LOGIN_S = 2.0
# Pause between two tries of all that wait. A change of the leader ends it.
RETRY_S = 0.2
# Connections that log in at a time; a leader refuses more than 8 (leader.PENDING_PER_ADDRESS).
LOGINS_AT_ONCE = 3
RECEIVE_OCTETS = 4096
# Listener -> prefix of the settings of its admission gate. Clients of other listeners have no gate.
GATES = {"amqp": "", "amqps": "", "mqtt": "mqtt_", "mqtts": "mqtt_"}
# Errors of a failed try that are no fault of this program.
EXPECTED = (OSError, FrameError, MessageError, LoginRefused)

# An address of the leader's cluster port, (host, port).
Address = tuple[str, int]


class Forwarder:
    """Passes the clients of a follower's listeners on to the leader.

        hub                   the node's hub.context.Hub
        secret                at least 16 bytes; may be set later, while ``leader_address()`` returns None
        name                  the node's name
        tls                   an SSL context for the cluster port, or None
        leader_address()      returns the address of the present leader's cluster port, or None;
                              call ``leader_changed`` when the result changes
        identity()            returns the folder's Identity
        refused(address)      called when the leader refuses a connection (ECONNREFUSED)
    """

    def __init__(
            self, hub: Any, secret: bytes, name: str, leader_address: Callable[[], Address | None],
            identity: Callable[[], Identity], tls: Any = None,
            refused: Callable[[Address], None] = lambda address: None):
        self._hub = hub
        self.secret, self._name = secret, name
        self._leader_address, self._identity = leader_address, identity
        self._tls = tls
        self._refused = refused
        self._pumps = Pumps()
        self._logins = Semaphore(LOGINS_AT_ONCE)
        self._changed = Event()
        self._forwarded: dict[_Forwarded, Address] = {}
        self._waiting: dict[Any, None] = {}  # greenlets of clients that are not passed on yet
        self._again_s = 0.0  # time of the next try, for all clients that wait
        self._strangers = QuietLog(LOG)
        self._is_closed = False

    def gate(self, protocol: str) -> Any:
        """Return the admission gate of a protocol in GATES."""
        return self._hub.admission.gate(GATES[protocol])

    def handler(self, listener: str) -> Callable[[Any, Any], Any]:
        """Return a function ``handle(socket, address)`` that serves clients of a listener, such as "amqps".

        It passes them on to the leader's listener of the same name. ``handle`` may switch greenlets; it
        returns ``when_gone`` (see net.listener), or None if the caller must close the socket.
        """
        return partial(self._forward, listener)

    def until_end(self, connection: Any, address: Any) -> None:
        """Pass a client of the HTTP listener on, until the connection ends. May switch greenlets."""
        serve(self.handler("http"), connection, address)

    def leader_changed(self) -> None:
        """Try again to pass waiting clients on. If a leader is known, end connections to other leaders."""
        self._again_s = 0.0
        self._changed.set()
        self._changed.clear()
        address = self._leader_address()
        for forwarded in [one for one, other in self._forwarded.items() if other != address]:
            if address is not None:
                forwarded.close()

    def close(self) -> None:
        """End all connections. May switch greenlets."""
        self._is_closed = True
        gevent.killall(list(self._waiting))
        self._pumps.close()

    # one client

    def _forward(self, listener: str, connection: Any, address: Any) -> Any:
        admission, gate, host = self._hub.admission, None, host_of(address)
        if listener in GATES:
            gate = self.gate(listener)
            admitted = gate.identify(connection, host)
        else:
            admitted = admission.add(connection.fileno(), host)
        if admitted is None:
            return None
        forwarded = _Forwarded()
        if gate is None:
            forwarded.at_end(admission.remove, admitted)
        self._waiting[gevent.getcurrent()] = None
        has_begun = False
        try:
            has_begun = self._begin(forwarded, listener, connection, address)
        finally:
            del self._waiting[gevent.getcurrent()]
            if not has_begun:
                forwarded.over()
        if not has_begun:
            return None
        if gate is not None:
            gate.logged_in(admitted)  # no longer pending here: now it may be at the leader
        return forwarded.when_gone

    def _begin(self, forwarded: "_Forwarded", listener: str, connection: Any, address: Any) -> bool:
        """Connect to the leader, and begin to pass bytes on.

        Returns False if that is impossible now. May switch greenlets.
        """
        proxy = header_of(address, connection.getsockname())
        found = self._upstream(listener, proxy, address)
        if found is None:
            return False
        leader, upstream = found
        forwarded.at_end(upstream.close)
        counted = self._hub.admission.add(upstream.fileno(), leader[0])
        if counted is None or self._is_closed:
            return False
        forwarded.at_end(self._hub.admission.remove, counted)
        self._forwarded[forwarded] = leader
        forwarded.at_end(self._forwarded.pop, forwarded)
        forwarded.close = self._pumps.join(connection, upstream, forwarded.over).close
        return True

    def _upstream(self, listener: str, proxy: bytes, client: Any) -> tuple[Address, Any] | None:
        """Log in at the leader, trying again for WAIT_S. Returns (address, socket), or None if that fails.

        May switch greenlets.
        """
        error: Exception = OSError("no leader is known")
        until_s = time.monotonic() + WAIT_S
        while (left_s := until_s - time.monotonic()) > 0:
            address = self._leader_address()
            if address is not None and self._logins.acquire(timeout=left_s):
                try:
                    if time.monotonic() >= self._again_s:
                        return address, self._logged_in(address, listener, proxy)
                except EXPECTED as failure:
                    error = failure
                    self._failed(address, failure)
                finally:
                    self._logins.release()
            self._changed.wait(RETRY_S if address is not None else left_s)
        self._strangers.warning(
            ("none", str(error)), "%s client %s is closed: it could not be passed on to the leader: %s",
            listener, format_address(client), error)
        return None

    def _failed(self, address: Address, error: Exception) -> None:
        if isinstance(error, ConnectionRefusedError):
            self._refused(address)
        if isinstance(error, OSError):
            self._again_s = time.monotonic() + RETRY_S

    def _logged_in(self, address: Address, listener: str, proxy: bytes) -> Any:
        with gevent.Timeout(LOGIN_S, OSError("the leader does not answer")):
            upstream = connect(address, self._tls)
            try:
                self._log_in(upstream, listener, proxy)
                return upstream
            except BaseException:
                upstream.close()
                raise

    def _log_in(self, upstream: Any, listener: str, proxy: bytes) -> None:
        identity = self._identity()
        login = ForwarderLogin(
            self.secret, identity.node_id, identity.cluster_id, identity.epoch, self._name, listener, proxy)
        reader = FrameReader(frames.LOGIN_MAX_PAYLOAD)
        upstream.sendall(login.hello())
        while not login.done:
            while (frame := reader.next()) is None:
                octets = upstream.recv(RECEIVE_OCTETS)
                if not octets:
                    raise OSError("the leader has closed the connection")
                reader.feed(octets)
            upstream.sendall(login.feed(frame))
        if reader.buffered:
            raise FrameError("bytes came behind the login")


class _Forwarded:
    """One forwarded client, until ``over`` is called. ``close`` ends the connection earlier."""

    __slots__ = ("close", "_ends", "_gone")

    def __init__(self) -> None:
        self.close: Callable[[], None] = lambda: None
        self._ends: list[Callable[[], Any]] | None = []
        self._gone: Callable[[], None] | None = None

    def at_end(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Register a function to be called at the connection's end. The last one is called first."""
        assert self._ends is not None
        self._ends.append(partial(function, *arguments))

    def over(self) -> None:
        """Call the functions of ``at_end`` and ``when_gone``, because the connection has ended."""
        ends, self._ends = self._ends, None
        for end in reversed(ends or ()):
            end()
        if self._gone is not None:
            self._gone()

    def when_gone(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call the callback when the connection has ended, or at once if it has ended already."""
        if self._ends is None:
            callback(*arguments)
        else:
            self._gone = partial(callback, *arguments)
