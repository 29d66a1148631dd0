"""Vhost deletion: a deleted vhost taken apart, in slices, while everybody else goes on.

Beside broker. Once the log says that a vhost is gone it is: nobody finds it any more, and nothing that is
declared in it by those who still hold it is kept. Here its connections are closed, then its queues and
exchanges let go of, then what users might do in it forgotten. A crash in between leaves folders that no
definition names, which go at the next boot, as what is left of the users' rights does.
"""
import time
from functools import partial

from gevent.event import Event

from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.observability.log import logger

LOG = logger("broker")


class VHostDeletion(Job):
    """One vhost being taken apart.

    ``connections`` are those in it; ``done()`` is called when nothing of it is left.
    """

    name = "deleting a vhost"

    def __init__(self, vhost, connections, users, done):
        super().__init__()
        self.vhost = vhost
        # From now on nothing is kept of what is done in it, before the first of its connections is closed.
        self._steps = self._all_steps(list(connections), vhost.departures(), users)
        self._done = done
        self._over = Event()
        # a small vhost is gone at once, however busy the machine is
        self._clock = SliceClock(clock=time.thread_time)

    def step(self):
        """The scheduler's next slice; False: it is over."""
        self._clock.begin()
        while self._step():
            if self._clock.is_over():
                return True
        return False

    def failed(self, error):
        """What hears that the vhost is gone failed; the next slice finds nothing left."""
        return True

    def finish(self):
        """Take apart what is left, at once: the broker stops, or somebody needs the name.

        Nothing where it is over.
        """
        while self._step():
            pass

    def wait(self):
        """Wait until it is over. May switch."""
        self._over.wait()

    def _step(self):
        """Do one thing more. False: there is none."""
        step = next(self._steps, None)
        if step is None:
            if not self._over.is_set():
                self._over.set()
                self._done()
            return False
        try:
            step()
        except Exception:  # the vhost is gone: what one thing of it does not let go of must not keep the rest
            LOG.exception("deleting vhost %r: one step failed, the others go on", self.vhost.name)
        return True

    def _all_steps(self, connections, departures, users):
        """A generator of functions, in order."""
        name = self.vhost.name
        for connection in connections:
            yield partial(connection.force_close, f"vhost '{name}' is down")
        yield from departures
        for user in list(users):
            yield partial(users.forget_vhost, name, user.name)
