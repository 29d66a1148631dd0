"""Boot keepalives: keep an elected leader's lease alive while it reads its data folder.

Reading a large folder takes seconds or minutes, and the event loop sends no keepalives meanwhile. Without
this module the lease would end before clients can connect, and so would the lease of each later leader.

A native thread with its own event loop sends the keepalives. It sends none while the process has used less
than USED_S seconds of processor time in HANGS_S, because the disk hangs then.
"""
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent import monkey

from gomq_py.cluster.core.coordinator import Coordinator
from gomq_py.cluster.core.lease import EVERY
from gomq_py.cluster.core.transactions import CoordinatorError, Unanswered
from gomq_py.observability.log import logger

LOG = logger("cluster")
# A boot that goes on uses more than USED_S of a processor in HANGS_S; the keepalives alone use less.
HANGS_S, USED_S = 10.0, 0.1

_start_thread = monkey.get_original("_thread", "start_new_thread")
_sleep = monkey.get_original("time", "sleep")


class BootKeepalives:
    """A thread that renews a lease several times per ``ttl_s`` until ``stop``.

    ``connect()`` makes the thread's Coordinator, and is called in the thread. ``lease``: the id of the lease.
    ``clock()`` returns seconds. ``used()`` returns the process's processor time in seconds.
    """

    def __init__(
            self, connect: Callable[[], Any], lease: int, ttl_s: float, clock: Callable[[], float],
            used: Callable[[], float] = time.process_time):
        self.lease = lease
        self._connect, self._ttl_s = connect, ttl_s
        self._clock, self._used = clock, used
        self._kept_s: float | None = None
        self._is_lost = self._is_over = False
        try:
            _start_thread(self._run, ())
        except RuntimeError:  # the system gives no thread: a node that was elected must boot all the same
            LOG.exception("no keepalives are sent during the boot")

    @property
    def kept(self) -> tuple[float | None, bool]:
        """The pair (time of sending the last successful keepalive or None, whether the lease has ended)."""
        return self._kept_s, self._is_lost

    def stop(self) -> None:
        """Make the thread end after its present keepalive. Does not switch greenlets."""
        # The thread may be in a last call of etcd for a moment.
        self._is_over = True

    # the thread

    def _run(self) -> None:
        try:
            coordinator = self._connect()
            try:
                self._renew(coordinator)
            finally:
                coordinator.close()
        except Exception:
            LOG.exception("no keepalives are sent during the boot")
        finally:
            gevent.get_hub().destroy(destroy_loop=True)

    def _renew(self, coordinator: Coordinator) -> None:
        used, since_s = self._used(), self._clock()
        while not self._is_over and not self._is_lost:
            sent_s = self._clock()
            if self._used() - used >= USED_S:
                used, since_s = self._used(), sent_s
            if sent_s - since_s < HANGS_S:
                try:
                    self._is_lost = not coordinator.keep_alive(self.lease)
                    if not self._is_lost:
                        self._kept_s = sent_s
                except (Unanswered, CoordinatorError):
                    pass  # once more
            _sleep(EVERY * self._ttl_s)
