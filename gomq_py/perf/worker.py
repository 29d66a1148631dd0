"""The worker process of the load generator, which drives its share of the connections in one loop."""
import ctypes
import gc
import heapq
import os
import select
import signal
import time

from gomq_py.client.errors import ClientError
from gomq_py.perf import shared

_LOOK_AT_FLAGS_MS = 50
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29  # waits of 100 us take 100 us, not 150
_FEW_DESCRIPTORS = 1000  # select() waits in microseconds but takes descriptors up to 1023 only


def run(make_roles, region, failures, parent):
    """Run a worker process: connect, wait for the start, then work until the parent stops it.

    ``make_roles(list)`` connects, and appends the Roles to the list. ``failures``: write end of a pipe, which
    gets the text of an error. ``parent``: the parent's process id; when the parent dies, the worker is
    killed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return  # already gone
    roles: list = []
    try:
        make_roles(roles)
        gc.freeze()
        if roles:
            loop = Loop(roles, region)
            try:
                loop.run()
            finally:
                loop.close()
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
    """The event loop of a worker: calls a Role's ``turn`` when its socket is ready or its rate allows it."""

    def __init__(self, roles, region):
        self._region = region
        self._roles = {role.socket.fileno(): role for role in roles}
        self._masks = dict.fromkeys(self._roles, select.POLLIN)
        self._due: list = []  # heap of (when, descriptor) held back by a rate
        self._planned: dict = {}  # descriptor -> valid heap entry
        self._poll = select.epoll()  # its flags are poll's
        for descriptor in self._roles:
            self._poll.register(descriptor, select.POLLIN)
        self._precise = (
            any(role.options.rate or role.options.consume_rate for role in roles)
            and max(self._roles) < _FEW_DESCRIPTORS
        )
        if self._precise:
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)

    def run(self):
        """Wait until the parent starts the run, then call the Roles until the parent stops the worker."""
        region, roles = self._region, self._roles.values()
        while not region.flag(shared.STARTED) and not region.flag(shared.STOP):
            self._turn(1)
        before_ns = time.process_time_ns()
        for role in roles:
            role.start(time.monotonic_ns())
        self._turn_all()
        stopped_publishing = False
        while not region.flag(shared.STOP):
            # CPU time of the whole process, counted for one of its connections.
            next(iter(roles)).counters[shared.CPU_NS] = time.process_time_ns() - before_ns
            self._turn(self._patience_ms())
            if region.flag(shared.STOP_PUBLISHING) and not stopped_publishing:
                stopped_publishing = True
                for role in roles:
                    role.stop_publishing()
                self._turn_all()
        for role in roles:
            role.finish()

    def close(self):
        self._poll.close()

    def _turn(self, timeout_ms):
        readable, ready = self._wait(timeout_ms)
        now_ns = time.monotonic_ns()
        while self._due and self._due[0][0] <= now_ns:
            entry = heapq.heappop(self._due)
            if self._planned.get(entry[1]) == entry[0]:
                del self._planned[entry[1]]
                ready.add(entry[1])
        for descriptor in ready:
            self._turn_one(descriptor, now_ns, descriptor in readable)

    def _turn_all(self):
        now_ns = time.monotonic_ns()
        for descriptor in self._roles:
            self._turn_one(descriptor, now_ns, False)

    def _turn_one(self, descriptor, now_ns, readable):
        role = self._roles[descriptor]
        role.turn(now_ns, readable)
        mask = role.interest()
        if mask != self._masks[descriptor]:
            self._masks[descriptor] = mask
            self._poll.modify(descriptor, mask)
        # A role that waits for room is called when its socket has room.
        due_ns = None if role.done or mask & select.POLLOUT else role.due_ns
        if due_ns is not None and due_ns != self._planned.get(descriptor):
            self._planned[descriptor] = due_ns
            heapq.heappush(self._due, (due_ns, descriptor))

    def _patience_ms(self):
        """Return the longest time to wait for sockets, in ms.

        The wait ends when a rate allows a message, or when the flags must be read again.
        """
        if not self._due:
            return _LOOK_AT_FLAGS_MS
        return min(max((self._due[0][0] - time.monotonic_ns()) / 1e6, 0), _LOOK_AT_FLAGS_MS)

    def _wait(self, timeout_ms):
        """Wait up to ``timeout_ms`` for events. Return two sets: readable and all ready descriptors."""
        if not self._precise:
            events = self._poll.poll(timeout_ms / 1000)
            return {descriptor for descriptor, what in events if what & ~select.POLLOUT}, {
                descriptor for descriptor, _ in events}
        readers = [descriptor for descriptor, mask in self._masks.items() if mask & select.POLLIN]
        writers = [descriptor for descriptor, mask in self._masks.items() if mask & select.POLLOUT]
        readable, writable, _ = select.select(readers, writers, [], timeout_ms / 1000)
        return set(readable), {*readable, *writable}
