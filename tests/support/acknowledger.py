"""An acknowledger whose answers the test gives: another place that keeps what the broker keeps."""


class HandAcknowledger:
    """``finish()`` says that everything it was asked about is safe,
    ``finish(error)`` that it never will be.
    """

    def __init__(self, name="the other place"):
        self._name = name
        self.waiting = []
        self.positions = []

    def __str__(self):
        return self._name

    def when_safe(self, position, callback):
        self.positions.append(position)
        self.waiting.append(callback)

    def finish(self, error=None):
        """Answer. Returns how many had asked."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)
        return len(waiting)
