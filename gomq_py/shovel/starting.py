"""Starting: starts the shovels of a booting broker in slices when there are very many.

For the supervisor, which owns this job.
"""
from gomq_py.hub.job import Job, SliceClock


class Starting(Job):
    """Starts shovels in slices."""

    name = "starting shovels"

    def __init__(self, owner, shovels):
        super().__init__()
        self._owner = owner
        self._shovels = shovels[::-1]
        self._clock = SliceClock()

    def step(self):
        self._clock.begin()
        while self._shovels:
            self._owner.start_one(self._shovels.pop())
            if self._clock.is_over():
                break
        return bool(self._shovels)

    def failed(self, error):
        return bool(self._shovels)
