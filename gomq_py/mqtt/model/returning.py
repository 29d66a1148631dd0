"""Returning: puts back into a session's queue what its client had not acknowledged when the connection ended,
where that is too much for one step.

Started by sent, which knows what is left. The queue delivers nothing meanwhile, so that nothing overtakes.
"""
from gomq_py.hub.job import Job


class Returning(Job):
    """Of one Sent, whose queue it holds."""

    name = "putting back what MQTT clients have not acknowledged"

    def __init__(self, sent):
        super().__init__()
        self._sent = sent
        self._is_over = False
        self._queue = sent.queue
        self._queue.hold()
        self._queue.scheduler.start(self)

    def step(self):
        if self._sent.returning is self and self._sent.put_back_some():  # else the queue was opened again
            return True
        self._is_over = True
        self._sent.returned(self)
        self._queue.release()
        self._queue.emptied()
        return False

    def failed(self, error):
        """One message comes again after a restart; the others go on."""
        return not self._is_over
