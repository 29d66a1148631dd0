"""Put back: octets that were read from a socket too early, to be read once more.

Beside stream, whose ``receive_into`` and ``pending`` it is for as long as there are some.
"""


class PutBack:
    """``octets``, at least one. ``done()`` is called when the last of them has been read. ``kept(count)``
    hears how many are kept here, and with 0 that none are any more.
    """

    __slots__ = ("_left", "_done", "_kept")

    def __init__(self, octets, done, kept):
        self._left = memoryview(octets)
        self._done = done
        self._kept = kept
        kept(len(octets))

    def pending(self):
        """How many there are, for which the socket will not call."""
        return len(self._left)

    def receive_into(self, view):
        """As a socket's ``recv_into``."""
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        self._left = self._left[count:]
        if not self._left:
            self._kept(0)
            self._done()
        return count
