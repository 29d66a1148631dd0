"""A worker process: one loop over the connections of its share of the load."""
import ctypes
import gc
import os
import select
import signal
import time

from gomq_py.client.errors import ClientError
from gomq_py.perf import shared

_LOOK_AT_FLAGS_MS = 50
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29  # so that waits of 100 us take 100 us, not 150
_FEW_DESCRIPTORS = 1000  # select() waits in microseconds but takes descriptors up to 1023 only


def run(make_roles, region, failures, parent):
    """In the child: make the connections, wait for the start, run until stopped.

    ``failures`` is the write end of a pipe for one text.

    ``parent`` is the process that decides when to stop: a worker that outlived it would load the broker for
    ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return  # it was gone before
    roles: list = []
    try:
        make_roles(roles)
        gc.freeze()
        Loop(roles, region).run()
    except (ClientError, OSError) as error:
        failures.send(str(error))
    except Exception as error:
        failures.send(f"a worker failed: {error!r}")
        raise
    finally:
        for role in roles:
            role.close()
        failures.close()


class Loop:
    """Turns each role whenever its socket or its rate lets it go on, until the parent says stop."""

    def __init__(self, roles, region):
        self._region = region
        self._roles = {role.socket.fileno(): role for role in roles}
        self._masks = dict.fromkeys(self._roles, select.POLLIN)
        self._poll = select.poll()
        for descriptor in self._roles:
            self._poll.register(descriptor, select.POLLIN)
        self._precise = (
            any(role.options.rate or role.options.consume_rate for role in roles)
            and max(self._roles) < _FEW_DESCRIPTORS
        )
        if self._precise:
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)

    def run(self):
        """From ready to stopped."""
        region, roles = self._region, self._roles.values()
        while not region.flag(shared.STARTED) and not region.flag(shared.STOP):
            self._turn(1)
        before_ns = time.process_time_ns()
        for role in roles:
            role.start(time.monotonic_ns())
        while not region.flag(shared.STOP):
            self._turn(self._patience_ms())
            if region.flag(shared.STOP_PUBLISHING):
                for role in roles:
                    role.stop_publishing()
            for role in roles:
                role.counters[shared.CPU_NS] = (time.process_time_ns() - before_ns) // len(roles)
        for role in roles:
            role.finish()

    def _turn(self, timeout_ms):
        readable = self._wait(timeout_ms)
        now_ns = time.monotonic_ns()
        for descriptor, role in self._roles.items():
            role.turn(now_ns, descriptor in readable)
            mask = role.interest()
            if mask != self._masks[descriptor]:
                self._masks[descriptor] = mask
                self._poll.modify(descriptor, mask)

    def _patience_ms(self):
        """How long to wait for sockets: until the next rate limit lets something go."""
        due_ns = min(
            (role.due_ns for role in self._roles.values() if role.due_ns is not None and not role.done),
            default=None,
        )
        if due_ns is None:
            return _LOOK_AT_FLAGS_MS
        return min(max((due_ns - time.monotonic_ns()) / 1e6, 0), _LOOK_AT_FLAGS_MS)

    def _wait(self, timeout_ms):
        """Wait for any event; the descriptors with something to read."""
        if not self._precise:
            return {
                descriptor for descriptor, events in self._poll.poll(timeout_ms) if events & ~select.POLLOUT
            }
        readers = [descriptor for descriptor, mask in self._masks.items() if mask & select.POLLIN]
        writers = [descriptor for descriptor, mask in self._masks.items() if mask & select.POLLOUT]
        return set(select.select(readers, writers, [], timeout_ms / 1000)[0])
