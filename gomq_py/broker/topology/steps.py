"""Steps: makes long changes of a vhost's model in slices, and removes the contents of a deleted vhost.

Once a vhost's deletion is in the log, clients do not find the vhost any more. Declares by its connected
clients are not logged. After a crash the next boot removes the folders and permissions that are left.
"""
import time
from functools import partial

from gevent.event import Event

from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.observability.log import logger

LOG = logger("broker")


class Steps(Job):
    """Job that calls ``step()`` until it returns False, despite errors. Its events name who began the job."""

    def __init__(self, name, step, events):
        super().__init__()
        self.name = name
        self._step = step
        self._events = events
        self._actor = events.actor
        # CPU time, so that a few steps are done at once, however busy the machine is
        self._clock = SliceClock(clock=time.thread_time)

    def step(self):
        return self._events.on_behalf_of(self._actor, self.some)

    def some(self):
        """Call ``step()`` for a slice of time. Returns True if steps are left."""
        self._clock.begin()
        while self._step():
            if self._clock.is_over():
                return True
        return False

    def failed(self, error):
        return True


class VHostDeletion(Steps):
    """Closes a deleted vhost's ``connections``, removes its contents and permissions, then calls ``done()``.
    Events that this causes name the user who deleted the vhost. ``counts``: (number of queues, number of
    exchanges that users have declared).
    """

    name = "deleting a vhost"

    def __init__(self, vhost, connections, users, events, done):
        super().__init__(self.name, self._next_step, events)
        self.vhost = vhost
        self.counts = len(vhost.queues), sum(not one.predeclared for one in vhost.exchanges.values())
        # Declares in the vhost are not kept from here on, before its first connection is closed.
        self._left = self._all_steps(list(connections), vhost.departures(), users)
        self._done = done
        self._over = Event()

    def finish(self):
        """Do all remaining steps now, because the broker stops or a new vhost needs the name."""
        while self.step():
            pass

    def wait(self):
        """Wait until all contents of the vhost are removed. May switch greenlets."""
        self._over.wait()

    def _next_step(self):
        step = next(self._left, None)
        if step is None:
            if not self._over.is_set():
                self._over.set()
                self._done()
            return False
        try:
            step()
        except Exception:  # a fault of one part must not keep other parts
            LOG.exception("deleting vhost %r: one step failed, the others go on", self.vhost.name)
        return True

    def _all_steps(self, connections, departures, users):
        name = self.vhost.name
        for connection in connections:
            yield partial(connection.force_close, f"vhost '{name}' is down")
        yield from departures
        for user in list(users):
            yield partial(users.forget_vhost, name, user.name)
