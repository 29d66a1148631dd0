"""Cancelling: very many consumers of a queue that is gone are told so, in slices.

Beside queue. The queue has let go of them before: it delivers to none of them, whoever has been told.
"""
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock

# Consumers that are told at once: some 5 us each.
FEW = 64


class Cancelling(Job):
    """Tells ``consumers``, the last of the list first."""

    name = "cancelling consumers"

    def __init__(self, queue, consumers, reason):
        super().__init__()
        self._queue = queue
        self._consumers = consumers
        self._reason = reason

    def step(self):
        """Tell some."""
        clock = SliceClock()
        while self._consumers:
            self._consumers.pop().cancelled_by(self._queue, self._reason)
            if clock.is_over():
                break
        return bool(self._consumers)

    def failed(self, error):
        """One could not be told; the others are."""
        return True


def cancel_all(queue, consumers, reason):
    """Cancel the consumers of a queue that has no ring any more, in their order. The list is used up."""
    consumers.reverse()
    cancelling = Cancelling(queue, consumers, reason)
    if len(consumers) > FEW:
        queue.scheduler.start(cancelling)
    else:
        while consumers:
            cancelling.step()
