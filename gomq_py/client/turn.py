"""Turn: decides which thread serves a link's connection: the link's own, or that of a waiting caller.

Two thread switches, to the link's thread and back, cost more than all other work of the client. So while the
link's thread only waits for the socket, a calling thread may take over the right to serve the connection. It
sends its message and reads the answer itself, and gives the right back as soon as there is other work.
"""

import select
import sys
import threading


class Turn:
    """The exclusive right to read and write a connection. The link's thread has it, and lends it to callers
    in ``wait``.

    ``connection_number`` and ``wake_number`` are file descriptors: of the connection's socket, and of the
    socket that wakes the link's thread.
    """

    def __init__(self, connection_number: int, wake_number: int) -> None:
        self._numbers = (connection_number, wake_number)
        self._wake_number = wake_number
        self.caller_waits = False  # True while the caller only waits
        self._lock = threading.Lock()
        self._lock.acquire()
        # Two epolls, so that the answer for a caller does not wake the link's thread as well.
        self._thread_waits_for, self._caller_waits_for = select.epoll(), select.epoll()
        for each in (self._thread_waits_for, self._caller_waits_for):
            for number in self._numbers:
                each.register(number, select.EPOLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for input, in the link's thread. Callers may take the right meanwhile.
        Returns whether another thread has woken the link's thread.
        """
        if seconds == 0:
            return self._was_woken(self._thread_waits_for.poll(0))
        self._lock.release()
        try:
            return self._was_woken(self._thread_waits_for.poll(seconds))
        finally:
            self._lock.acquire()

    def take(self) -> bool:
        """Take the right, in a caller's thread. Returns False at once if another thread has it."""
        if not self._lock.acquire(blocking=False):
            return False
        self.caller_waits = False
        self._let_thread_wait_for(0)
        return True

    def wait_as_caller(self, seconds: float) -> tuple[bool, bool]:
        """Wait up to ``seconds`` for input, in a caller's thread that has the right. Returns two bools:
        whether anything has arrived, and whether another thread wants to wake the link's thread.
        """
        self.caller_waits = True
        ready = self._caller_waits_for.poll(max(0.0, seconds))
        self.caller_waits = False
        return bool(ready), self._was_woken(ready)

    def give_back(self) -> None:
        """Give the right back to the link's thread, which wakes if there is unread input."""
        self._let_thread_wait_for(select.EPOLLIN)
        self._lock.release()

    def close(self) -> None:
        self._thread_waits_for.close()
        self._caller_waits_for.close()

    def _let_thread_wait_for(self, events):
        for number in self._numbers:
            try:
                self._thread_waits_for.modify(number, events)
            except OSError:
                pass  # the connection has been closed in this turn

    def _was_woken(self, ready):
        return any(number == self._wake_number for number, _ in ready)


class OwnTurn:
    """A Turn that callers can never take, because the threads are greenlets or the system has no epoll."""

    def __init__(self, connection_number: int, wake_number: int) -> None:
        self._wake_number = wake_number
        self._poll = select.poll()
        for number in (connection_number, wake_number):
            self._poll.register(number, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        ready = self._poll.poll(int(seconds * 1000) + 1 if seconds else 0)
        return any(number == self._wake_number for number, _ in ready)

    def take(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: select.poll() needs no close."""


def make_turn(connection_number: int, wake_number: int) -> Turn | OwnTurn:
    """Return a Turn for two file descriptors, or an OwnTurn if callers cannot serve the connection."""
    monkey = sys.modules.get("gevent.monkey")
    patched = monkey is not None and monkey.is_module_patched("threading")
    kind = Turn if hasattr(select, "epoll") and not patched else OwnTurn
    return kind(connection_number, wake_number)
