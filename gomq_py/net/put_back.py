"""Put back: octets that were read from a socket too early, to be read once more.

Beside stream, whose ``receive_into`` and ``pending`` it is for as long as there are some.
"""


class PutBack:
    """``octets``, at least one. ``done()`` is called when the last of them has been read."""

    __slots__ = ("_left", "_done")

    def __init__(self, octets, done):
        self._left = memoryview(octets)
        self._done = done

    def pending(self):
        """How many there are, for which the socket will not call."""
        return len(self._left)

    def receive_into(self, view):
        """As a socket's ``recv_into``."""
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        self._left = self._left[count:]
        if not self._left:
            self._done()
        return count
