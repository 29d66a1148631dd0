"""Admission: how many connections there may be: in all, and from one address; and how many may stand at the door without having logged in.

Between the listeners, which ask before they serve a socket, and the door, which says who logged in. A guest is counted from accept() to the end of
its socket. Refusals close the socket; nothing is said to a stranger. Never reads and never writes.

When too many wait for their login, whoever has waited longest among those of the address with the most gives way, once it had ``PATIENCE_S``: so
that one address that opens sockets and dawdles cannot keep others out, while a fleet that comes back all at once is let in one after the other.
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
# The share of the process's descriptors that connections may have; the rest is for files: nobody may keep the broker from writing what it confirmed.
DESCRIPTORS_SHARE = 0.75


class Guest:
    """One connection. ``host`` is whose it is, empty for this machine's sockets."""

    __slots__ = ("host", "since", "fileno", "identified")

    def __init__(self, host: str, since: float, fileno: int):
        self.host = host
        self.since = since
        self.fileno = fileno
        self.identified = False


class Admission:
    """Counts for one server. ``settings`` has max_connections_per_address and max_pending_logins; they are read at every arrival."""

    def __init__(self, settings: Any, clock: Callable[[], float] = time.monotonic, descriptors: int = 0):
        """``descriptors``: how many this process may have; 0 asks the system."""
        self._settings = settings
        self._clock = clock
        self._most = int((descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[0]) * DESCRIPTORS_SHARE)
        self._log = QuietLog(LOG)
        self._guests: dict[int, Guest] = {}
        self._pending: dict[Guest, None] = {}
        self._hosts: Counter[str] = Counter()
        self._is_closed = False

    @property
    def count(self) -> int:
        """Connections there are, logged in or not."""
        return len(self._guests)

    @property
    def pending_count(self) -> int:
        """Those that have not logged in yet."""
        return len(self._pending)

    def has_room(self) -> bool:
        """Whether one more may come now; False: not before somebody has logged in, left or dawdled. May drop who dawdles."""
        return len(self._pending) < self._settings.max_pending_logins or self._drop_a_dawdler()

    def enter(self, connection: Any, host: str) -> Guest | None:
        """Count an accepted socket; None: it must be closed, and the log says why, unless everything ends."""
        if self._is_closed:
            return None
        if len(self._guests) >= self._most:
            self._log.warning(
                "descriptors", "connection from %s refused: there are %d, and the other descriptors are for files (ulimit -n)", host,
                len(self._guests))
            return None
        fileno = connection.fileno()
        guest = Guest(host, self._clock(), fileno)
        self._guests[fileno] = guest
        self._pending[guest] = None
        return guest

    def identify(self, connection: Any, host: str) -> Guest | None:
        """The guest behind a socket that a listener let in, now that a proxy has said whose it is; None: it must be closed, and the log says why.

        A socket that comes from elsewhere is counted from here on; whoever brought it calls ``leave``.
        """
        if self._is_closed:
            return None
        limit = self._settings.max_connections_per_address
        if limit and self._hosts[host] >= limit:
            self._log.warning(
                ("address", host), "connection from %s refused: it has %d already (max_connections_per_address)", host or "this machine", limit)
            return None
        guest = self._guests.get(connection.fileno()) or self.enter(connection, host)
        if guest is not None and not guest.identified:
            guest.host, guest.identified = host, True
            self._hosts[host] += 1
        return guest

    def logged_in(self, guest: Guest) -> None:
        """It is no stranger any more."""
        self._pending.pop(guest, None)

    def leave(self, guest: Guest) -> None:
        """Its socket is about to be closed. A second call does nothing."""
        if self._guests.get(guest.fileno) is guest:
            del self._guests[guest.fileno]
            if guest.identified:
                self._hosts[guest.host] -= 1
                if not self._hosts[guest.host]:
                    del self._hosts[guest.host]
        self._pending.pop(guest, None)

    def close(self) -> None:
        """Shut down the sockets of all there are: whoever serves one finds its end, and closes it. Nobody comes in any more."""
        self._is_closed = True
        for fileno in self._guests:
            shut_down(fileno)

    def _drop_a_dawdler(self) -> bool:
        """Shut down the socket of the oldest pending guest of the address that has the most. False where that is too young for it."""
        ranks = Counter(guest.host for guest in self._pending)
        greediest = ranks.most_common(1)[0][0]
        guest = next(guest for guest in self._pending if guest.host == greediest)
        if self._clock() - guest.since < PATIENCE_S:
            return False
        self._log.warning(
            ("dawdlers", greediest), "%d connections wait for their login (max_pending_logins), %d of them from %s: the oldest give way",
            len(self._pending), ranks[greediest], greediest or "this machine")
        del self._pending[guest]
        shut_down(guest.fileno)
        return True


def shut_down(fileno: int, how: int = socket.SHUT_RDWR) -> None:
    """End a socket that another greenlet serves, whatever wraps it by now (TLS): what it waits for ends, and it closes the socket."""
    borrowed = socket.socket(fileno=fileno)
    try:
        borrowed.shutdown(how)
    except OSError:
        pass  # it has ended by itself
    finally:
        borrowed.detach()
