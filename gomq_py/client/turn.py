"""Turn: decides whether the link's thread or a waiting caller serves a link's connection.

A caller that hands its message to the link's thread and is woken after the answer costs two thread switches:
more time than all else on our side. So a caller may take the place of the link's thread while the thread only
waits for the socket, send its message itself and read the answer. The caller gives the place back as soon as
anything else comes up.
"""

import select
import sys
import threading


class Turn:
    """The right to serve a connection. The link's thread has the right, and lends it during ``wait``."""

    def __init__(self, connection_number, wake_number):
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

    def wait(self, seconds):
        """Wait in the link's thread, and lend the turn meanwhile; True if a wakeup has ended the wait."""
        if seconds == 0:
            return self._was_woken(self._thread_waits_for.poll(0))
        self._lock.release()
        try:
            return self._was_woken(self._thread_waits_for.poll(seconds))
        finally:
            self._lock.acquire()

    def take(self):
        """Take the turn as a caller; False, without waiting, if the turn is not free."""
        if not self._lock.acquire(blocking=False):
            return False
        self.caller_waits = False
        self._let_thread_wait_for(0)
        return True

    def wait_as_caller(self, seconds):
        """Wait as a caller; returns (whether anything came, whether the link's thread is wanted)."""
        self.caller_waits = True
        ready = self._caller_waits_for.poll(max(0.0, seconds))
        self.caller_waits = False
        return bool(ready), self._was_woken(ready)

    def give_back(self):
        """Return the turn to the link's thread, which is woken if input is left."""
        self._let_thread_wait_for(select.EPOLLIN)
        self._lock.release()

    def close(self):
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
    """A turn that is never shared: the threads are greenlets, or the system has no epoll."""

    def __init__(self, connection_number, wake_number):
        self._wake_number = wake_number
        self._poll = select.poll()
        for number in (connection_number, wake_number):
            self._poll.register(number, select.POLLIN)

    def wait(self, seconds):
        ready = self._poll.poll(int(seconds * 1000) + 1 if seconds else 0)
        return any(number == self._wake_number for number, _ in ready)

    def take(self):
        return False

    def close(self):
        """Does nothing: a poll needs no close."""


def make_turn(connection_number, wake_number):
    """A Turn, or an OwnTurn if callers cannot serve the connection."""
    monkey = sys.modules.get("gevent.monkey")
    patched = monkey is not None and monkey.is_module_patched("threading")
    kind = Turn if hasattr(select, "epoll") and not patched else OwnTurn
    return kind(connection_number, wake_number)
