"""Large packet: one that does not fit in front of a read, gathered read by read.

Between the fast lane and the budget for bodies (hub.bodies), whose client it is. Never looks into the packet.
"""
from gomq_py.mqtt.wire.errors import QuotaExceeded

WAITS_FOR = "room for message bodies"


class LargePacket:
    """``octets`` holds ``room`` octets that mean nothing, and behind them what has come of the packet, which
    has ``size``.
    """

    __slots__ = ("octets", "_end", "_connection", "_hold")

    def __init__(self, connection, room, size):
        self.octets = bytearray(room)
        self._end = room + size
        self._connection = connection
        self._hold = None

    def missing(self):
        """Octets that have not come."""
        return self._end - len(self.octets)

    def add(self, octets):
        """Take the next octets. Returns False when reading must pause."""
        self.octets += octets
        if self._connection.hub.bodies.grow(self, len(octets)) or not self.missing():
            return True
        self._hold = self._connection.stream.hold(WAITS_FOR)
        return False

    def end(self):
        """It is complete, or nobody waits for the rest."""
        self._connection.hub.bodies.release(self)
        self.resume_held()

    # for the budget

    @property
    def owner(self):
        """Its connection."""
        return self._connection

    def resume_held(self):
        """There is room for the rest, or nobody waits for it any more."""
        if self._hold is not None:
            self._hold.release()

    def give_up(self, why):
        """It held up others for too long."""
        self._connection.fail(QuotaExceeded(why))
