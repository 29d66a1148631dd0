"""Admission: how many connections there may be, in all and from one address, and how many of them may be
pending: connected, but not logged in.

Between the listeners, which ask before they serve a socket, and the door, which says who logged in. A
connection is counted from accept() to the end of its socket. A refusal closes the socket; a client that has
not logged in is told nothing. Never reads and never writes.

When too many are pending, the one that has waited longest among those of the address with the most is
dropped, once it had ``PATIENCE_S``: so that one address that opens sockets and does not log in cannot keep
others out, while a fleet that comes back all at once is let in one after the other.
"""
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("listener")
# A login takes some milliseconds of ours and three round trips.
PATIENCE_S = 2.0
# The share of the process's descriptors that connections may have; the rest is for files: nobody may keep the
# broker from writing what it confirmed.
DESCRIPTORS_SHARE = 0.75


class AdmittedSocket:
    """One connection that was let in. ``host`` is the peer's address, empty for this machine's sockets."""

    __slots__ = ("host", "since", "fileno", "identified")

    def __init__(self, host: str, since: float, fileno: int):
        self.host = host
        self.since = since
        self.fileno = fileno
        self.identified = False


class Admission:
    """Counts the connections of one server.

    ``settings`` has max_connections_per_address and max_pending_logins; they are read at every arrival.
    """

    def __init__(self, settings: Any, clock: Callable[[], float] = time.monotonic, descriptors: int = 0):
        """``descriptors``: how many this process may have; 0 asks the system."""
        self._settings = settings
        self._clock = clock
        self._most = int((descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[0]) * DESCRIPTORS_SHARE)
        self._log = QuietLog(LOG)
        self._admitted: dict[int, AdmittedSocket] = {}
        self._pending: dict[AdmittedSocket, None] = {}
        self._hosts: Counter[str] = Counter()
        self._is_closed = False

    @property
    def count(self) -> int:
        """Connections there are, logged in or not."""
        return len(self._admitted)

    @property
    def pending_count(self) -> int:
        """Those that have not logged in yet."""
        return len(self._pending)

    def has_room(self) -> bool:
        """True if another client may connect.

        Otherwise the pending connection that has waited longest may be dropped to make room; False: none was,
        and there is room again only after somebody has logged in or left.
        """
        return len(self._pending) < self._settings.max_pending_logins or self._drop_the_slowest()

    def enter(self, connection: Any, host: str) -> AdmittedSocket | None:
        """Count an accepted socket; None: it must be closed, and the log says why, unless everything ends."""
        if self._is_closed:
            return None
        if len(self._admitted) >= self._most:
            self._log.warning(
                "descriptors",
                "connection from %s refused: there are %d, and the other descriptors are for files (ulimit "
                "-n)", host,
                len(self._admitted))
            return None
        fileno = connection.fileno()
        admitted = AdmittedSocket(host, self._clock(), fileno)
        self._admitted[fileno] = admitted
        self._pending[admitted] = None
        return admitted

    def identify(self, connection: Any, host: str) -> AdmittedSocket | None:
        """What was admitted of a socket that a listener let in, now that a proxy has said whose it is; None:
        it must be closed, and the log says why.

        A socket that comes from elsewhere is counted from here on; whoever brought it calls ``leave``.
        """
        if self._is_closed:
            return None
        limit = self._settings.max_connections_per_address
        if limit and self._hosts[host] >= limit:
            self._log.warning(
                ("address", host),
                "connection from %s refused: it has %d already (max_connections_per_address)",
                host or "this machine", limit)
            return None
        admitted = self._admitted.get(connection.fileno()) or self.enter(connection, host)
        if admitted is not None and not admitted.identified:
            admitted.host, admitted.identified = host, True
            self._hosts[host] += 1
        return admitted

    def logged_in(self, admitted: AdmittedSocket) -> None:
        """The client has logged in: its connection is pending no more."""
        self._pending.pop(admitted, None)

    def leave(self, admitted: AdmittedSocket) -> None:
        """Its socket is about to be closed. A second call does nothing."""
        if self._admitted.get(admitted.fileno) is admitted:
            del self._admitted[admitted.fileno]
            if admitted.identified:
                self._hosts[admitted.host] -= 1
                if not self._hosts[admitted.host]:
                    del self._hosts[admitted.host]
        self._pending.pop(admitted, None)

    def close(self) -> None:
        """Shut down all sockets, which whoever serves one finds ended and closes. Nobody is let in any more.
        """
        self._is_closed = True
        for fileno in self._admitted:
            shut_down(fileno)

    def _drop_the_slowest(self) -> bool:
        """Shut down the oldest pending connection of the address that has the most. False where it has not
        waited for PATIENCE_S.
        """
        ranks = Counter(admitted.host for admitted in self._pending)
        greediest = ranks.most_common(1)[0][0]
        admitted = next(admitted for admitted in self._pending if admitted.host == greediest)
        if self._clock() - admitted.since < PATIENCE_S:
            return False
        self._log.warning(
            ("slowest", greediest),
            "%d connections wait for their login (max_pending_logins), %d of them from %s: the oldest give "
            "way",
            len(self._pending), ranks[greediest], greediest or "this machine")
        del self._pending[admitted]
        shut_down(admitted.fileno)
        return True


def shut_down(fileno: int, how: int = socket.SHUT_RDWR) -> None:
    """End a socket that another greenlet serves, whatever wraps it by now (TLS): what it waits for ends, and
    it closes the socket.
    """
    borrowed = socket.socket(fileno=fileno)
    try:
        borrowed.shutdown(how)
    except OSError:
        pass  # it has ended by itself
    finally:
        borrowed.detach()
