"""How long to wait before the next attempt, of a connection as of a task. A leaf."""

import random


class Backoff:
    """Waits that double from ``first_s`` up to ``most_s``, so that a broker that comes back is not run over.

    Of each, up to the share ``jitter`` is taken off at random: clients that were cut off together come back
    one by one. ``retries`` is how many attempts may follow the first; None: for ever.
    """

    def __init__(self, first_s=1.0, most_s=30.0, retries=None, jitter=0.5, factor=2.0):
        if not 0 <= first_s <= most_s or not 0 <= jitter <= 1 or not factor >= 1:  # so that NaN is refused too
            raise ValueError(f"a back-off from {first_s} to {most_s} s by {factor}, jitter {jitter}, is none")
        self.first_s = first_s
        self.most_s = most_s
        self.retries = retries
        self.jitter = jitter
        self.factor = factor

    def wait_s(self, attempt):
        """Seconds before attempt ``attempt`` (1: the first retry); None when there is to be none."""
        if self.retries is not None and attempt > self.retries:
            return None
        # 64 doublings are more than any clock knows; a power of a larger number is none of a float.
        whole_s = min(self.most_s, self.first_s * self.factor ** min(attempt - 1, 64))
        return whole_s * (1 - self.jitter * random.random())
