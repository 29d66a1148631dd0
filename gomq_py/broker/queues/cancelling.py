"""Cancelling: tells consumers that their queue was deleted or closed, in slices if there are many.

The queue no longer delivers to these consumers.
"""
from gomq_py.hub.scheduler import Job, SliceClock

# Consumers that are told at once, without slices: some 5 us each.
FEW = 64


class Cancelling(Job):
    """Cancels the ``consumers`` of a deleted or closed queue in slices, from the end of the list."""

    name = "cancelling consumers"

    def __init__(self, queue, consumers, reason):
        super().__init__()
        self._queue = queue
        self._consumers = consumers
        self._reason = reason

    def step(self):
        clock = SliceClock()
        while self._consumers:
            self._consumers.pop().cancelled_by(self._queue, self._reason)
            if clock.is_over():
                break
        return bool(self._consumers)

    def failed(self, error):
        """Return True, so that the job goes on with the remaining consumers."""
        return True


def cancel_all(queue, consumers, reason):
    """Cancel the consumers that a queue has dropped, in order. Empties the list ``consumers``. More than FEW
    consumers are cancelled in slices, later.
    """
    consumers.reverse()
    cancelling = Cancelling(queue, consumers, reason)
    if len(consumers) > FEW:
        queue.scheduler.start(cancelling)
    else:
        while consumers:
            cancelling.step()
