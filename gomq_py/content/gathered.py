"""Gathered: a message body that arrived in parts, in one buffer with room in front. A leaf.

storage.message puts exchange, routing key and properties into that room, so the whole message is in one
buffer without a copy of the body.
"""


class Gathered:
    """A body of ``size`` octets, of which ``received`` have arrived, from ``at`` on in ``octets``. ``lent``
    keeps that memory reserved while a reference to it exists.
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
        """Append the next octets of the body; the caller has checked that they fit."""
        start = self.at + self.received
        self.octets[start:start + len(octets)] = octets
        self.received += len(octets)

    def came(self, count):
        """Count ``count`` octets that the caller wrote into room()."""
        self.received += count

    def to_come(self):
        """Octets of the body that have not arrived."""
        return self.size - self.received

    def room(self, count, ahead=0):
        """A view to write ``count`` octets of the body into, ``ahead`` octets behind the received ones."""
        start = self.at + self.received + ahead
        return self.octets[start:start + count]

    def lead(self, octets):
        """Put ``octets`` directly in front of the body. Returns their offset; -1: they do not fit."""
        start = self.at - len(octets)
        if start >= 0:
            self.octets[start:self.at] = octets
        return start

    def __bytes__(self):
        return bytes(self.octets[self.at:self.at + self.received])
