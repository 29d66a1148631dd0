"""Steps: a change of a vhost's model in slices, while everybody else goes on."""
import time

from gomq_py.hub.job import Job, SliceClock


class Steps(Job):
    """A change of the model step by step, on behalf of whoever began it.

    It goes on whatever one step raises.
    """

    def __init__(self, name, step, events):
        super().__init__()
        self.name = name
        self._step = step
        self._events = events
        self._actor = events.actor
        self._clock = SliceClock(clock=time.thread_time)

    def step(self):
        return self._events.on_behalf_of(self._actor, self.some)

    def some(self):
        """Take some steps. Whether there are more."""
        self._clock.begin()
        while self._step():
            if self._clock.is_over():
                return True
        return False

    def failed(self, error):
        return True
