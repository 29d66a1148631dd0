"""Returning: puts a session's unacknowledged messages back into its queue in slices, after a connection with
very many.

Started by sent, which knows the messages. The queue delivers nothing meanwhile, so that no message overtakes.
"""
from gomq_py.hub.job import Job


class Returning(Job):
    """Returns the messages of one Sent, whose queue it holds."""

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
        """Go on: the failed message comes again after a restart."""
        return not self._is_over
