"""Jobs made of functions, for tests of whoever runs them."""
from gomq_py.hub.scheduler import Job


class Doing(Job):
    """``step`` is its slice; ``failed(error)`` says whether it goes on after one that raised,
    without it: no.
    """

    def __init__(self, step, failed=None, name="a job"):
        super().__init__()
        self.name = name
        self._step = step
        self._failed = failed

    def step(self):
        return bool(self._step())

    def failed(self, error):
        return self._failed is not None and bool(self._failed(error))
