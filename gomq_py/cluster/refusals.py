"""Refusals: reports that no process listens at the leader's address any more.

The machine of a killed process refuses connections at once, so a new leader need not wait for the end of the
former leader's lease. A single refusal may come from a node that is about to open its listener, so the
address is tried again.
"""
import time
from collections.abc import Callable

import gevent
from gevent import socket

# Time between the two tries, and for the second one.
AGAIN_S, ANSWER_S = 0.15, 0.5
# Least time between two reports: behind a firewall that refuses this node's connections, each new leader
# would be reported at once.
REPORT_S = 60.0

Address = tuple[str, int]


class Refusals:
    """Calls ``report(address)`` once an address has refused two connections; at most once per REPORT_S."""

    def __init__(self, report: Callable[[Address], None]):
        self._report = report
        self._reported_s = -REPORT_S
        self._trying = None

    def refused(self, address: Address) -> None:
        """Note a refused connection (ECONNREFUSED), and schedule another try. Does not switch greenlets."""
        if self._trying is None and time.monotonic() >= self._reported_s + REPORT_S:
            self._trying = gevent.spawn_later(AGAIN_S, self._try, address)

    def close(self) -> None:
        self._reported_s = float("inf")
        if self._trying is not None:
            self._trying.kill(block=False)
            self._trying = None

    def _try(self, address: Address) -> None:
        try:
            if refuses(address):
                self._reported_s = time.monotonic()
                self._report(address)
        finally:
            self._trying = None


def refuses(address: Address) -> bool:
    """Return whether an address refuses a connection (ECONNREFUSED).

    May switch greenlets, for ANSWER_S at most.
    """
    try:
        with gevent.Timeout(ANSWER_S, OSError("no answer")):
            socket.create_connection(address).close()
    except ConnectionRefusedError:
        return True
    except (OSError, UnicodeError):
        pass  # the machine is gone, or is too busy: the lease decides
    return False
