"""Gathered: a message body that came in parts, in one buffer with room before it.

Whoever stores the message (storage.message) puts exchange, routing key and properties into that room, and so
has all parts of it in one buffer without a copy of the body. A leaf: octets only.
"""


class Gathered:
    """A body of ``size`` octets, of which ``received`` are there, from ``at`` on in ``lent.octets``, a view
    that is ours for as long as somebody has ``lent``.
    """

    __slots__ = ("octets", "at", "size", "received", "_lent")

    def __init__(self, lent, at, size):
        self._lent = lent
        self.octets = lent.octets
        self.at = at
        self.size = size
        self.received = 0

    def __len__(self):
        return self.received

    def add(self, octets):
        """The next octets of the body; the caller has made sure that there are not too many."""
        start = self.at + self.received
        self.octets[start:start + len(octets)] = octets
        self.received += len(octets)

    def came(self, count):
        """So many octets were put into room()."""
        self.received += count

    def to_come(self):
        """How many octets are not there yet."""
        return self.size - self.received

    def room(self, count, ahead=0):
        """Where the next ``count`` octets belong, or those that come ``ahead`` octets later."""
        start = self.at + self.received + ahead
        return self.octets[start:start + count]

    def lead(self, octets):
        """Put these directly before the body. Returns where they begin; -1: there is no room for them."""
        start = self.at - len(octets)
        if start >= 0:
            self.octets[start:self.at] = octets
        return start

    def __bytes__(self):
        return bytes(self.octets[self.at:self.at + self.received])
