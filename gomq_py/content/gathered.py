"""Gathered: collects a message body that arrives in parts in one buffer, with free space in front of the
body.

storage.message puts exchange, routing key and properties into this space, so that the whole message is in one
buffer without a copy of the body.
"""


class Gathered:
    """A body of ``size`` octets, of which ``received`` have arrived. It begins at ``at`` in the buffer
    ``octets``, which is ``lent.octets`` and stays reserved while a reference to ``lent`` exists.
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
        """Append the next octets of the body. The caller has checked that they fit."""
        start = self.at + self.received
        self.octets[start:start + len(octets)] = octets
        self.received += len(octets)

    def came(self, count):
        """Count ``count`` octets, which the caller has written into room(), as received."""
        self.received += count

    def room(self, count, ahead=0):
        """A view to write ``count`` octets of the body, ``ahead`` octets behind the received ones."""
        start = self.at + self.received + ahead
        return self.octets[start:start + count]

    def lead(self, octets):
        """Write ``octets`` directly in front of the body. Returns the offset where they begin; a negative
        number, having written nothing, if there is too little space.
        """
        start = self.at - len(octets)
        if start >= 0:
            self.octets[start:self.at] = octets
        return start

    def __bytes__(self):
        return bytes(self.octets[self.at:self.at + self.received])
