"""Collects a message body, which arrives in parts, in one buffer with free space in front of the body.

storage.message puts exchange, routing key and properties into this space, so that the whole message is in one
buffer without a copy of the body.
"""


class Gathered:
    """A body of ``size`` bytes, of which ``received`` have arrived. It begins at ``at`` in the buffer
    ``octets``. ``lent``: owner of this buffer. The buffer stays reserved while the owner is referenced.
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
        """Append the next bytes of the body. The caller has checked that they fit."""
        start = self.at + self.received
        self.octets[start:start + len(octets)] = octets
        self.received += len(octets)

    def came(self, count):
        """Count ``count`` bytes as received, after the caller has written them into the view from room()."""
        self.received += count

    def room(self, count, ahead=0):
        """Return a view to write ``count`` bytes of the body, ``ahead`` bytes after the received ones."""
        start = self.at + self.received + ahead
        return self.octets[start:start + count]

    def lead(self, octets):
        """Write ``octets`` directly in front of the body. Return the offset where they begin. If there is
        too little space, write nothing and return a negative number.
        """
        start = self.at - len(octets)
        if start >= 0:
            self.octets[start:self.at] = octets
        return start

    def __bytes__(self):
        return bytes(self.octets[self.at:self.at + self.received])
