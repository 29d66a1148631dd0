"""Gathered: collects a message body that arrives in parts in one buffer, with room in front of the body.

storage.message puts exchange, routing key and properties into this room, so that the whole message is in one
buffer without a copy of the body.
"""


class Gathered:
    """Holds a body of ``size`` octets, of which ``received`` have arrived, from ``at`` on in ``octets``. This
    memory stays reserved while a reference to the object ``lent`` exists.
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
        """Append the next octets of the body. The caller has checked that there is room."""
        start = self.at + self.received
        self.octets[start:start + len(octets)] = octets
        self.received += len(octets)

    def came(self, count):
        """Count ``count`` octets that the caller wrote into room()."""
        self.received += count

    def to_come(self):
        """Count of octets of the body that have not arrived."""
        return self.size - self.received

    def room(self, count, ahead=0):
        """A view for ``count`` octets of the body, which begins ``ahead`` octets behind the received ones."""
        start = self.at + self.received + ahead
        return self.octets[start:start + count]

    def lead(self, octets):
        """Put ``octets`` directly in front of the body; returns their offset. Returns a negative number, and
        does nothing, if there is no room for them.
        """
        start = self.at - len(octets)
        if start >= 0:
            self.octets[start:self.at] = octets
        return start

    def __bytes__(self):
        return bytes(self.octets[self.at:self.at + self.received])
