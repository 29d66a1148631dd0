"""Large packet: one that does not fit in front of a read, gathered read by read.

Between the fast lane and the budget for bodies (hub.budget), whose client it is. What a PUBLISH needs, rights
and room for its payload, is asked for as soon as its head is there; if it is refused, no more of it is kept.
"""
from gomq_py.mqtt.server.inbound import Refusal
from gomq_py.mqtt.server.publish import check_head, is_answered, refuse_whole
from gomq_py.mqtt.wire.codec import decode_publish_head
from gomq_py.mqtt.wire.errors import PacketTooLarge, QuotaExceeded

WAITS_FOR = "room for message bodies"
# What may have come of a PUBLISH before its topic is known: properties, where an alias stands for it, which
# are some octets.
HEAD_MAX = 256 * 1024


class LargePacket:
    """``octets`` holds ``room`` octets that mean nothing, and behind them what has come of the packet, which
    has ``size``, and ``is_publish`` or anything else. ``limits`` are the lane's.
    """

    __slots__ = (
        "octets", "_room", "_left", "_connection", "_hold", "_limits", "_is_checked", "_head", "_refusal")

    def __init__(self, connection, room, size, is_publish, limits):
        self.octets = bytearray(room)
        self._room = room
        self._left = size
        self._connection = connection
        self._hold = None
        self._limits = limits
        self._is_checked = not is_publish
        self._head = self._refusal = None

    def missing(self):
        """Octets that have not come."""
        return self._left

    def add(self, octets):
        """Take the next octets. Returns False when reading must pause. Raises MQTTError."""
        self._left -= len(octets)
        if self._refusal is not None:
            return True
        self.octets += octets
        if not self._is_checked:
            self._check()
            if self._refusal is not None:
                return True
        bodies = self._connection.hub.bodies
        if not self._left or bodies.grow(self, len(octets)):
            return True
        self._hold = self._connection.stream.hold(WAITS_FOR)
        return False

    def _check(self):
        head = decode_publish_head(self.octets, self._room, self._connection.version, self._limits)
        if head is None:
            if len(self.octets) > HEAD_MAX:
                raise PacketTooLarge(f"PUBLISH: no topic in its first {HEAD_MAX} octets")
            return
        self._is_checked = True
        try:
            check_head(self._connection, head)
        except Refusal as refusal:
            if not is_answered(self._connection, head.qos):
                raise
            self._head, self._refusal = head, refusal
            self.octets.clear()
            self._connection.hub.bodies.release(self)

    def refuse(self):
        """All of it has come: whether its head was refused, which the client is told now. Raises MQTTError.
        """
        if self._refusal is None:
            return False
        refuse_whole(self._connection, self._head, self._refusal)
        return True

    def end(self):
        """It is complete, or nobody waits for the rest."""
        self._connection.hub.bodies.release(self)
        self.resume_held()

    # for the budget

    @property
    def output(self):
        """Its connection's."""
        return self._connection.output

    @property
    def is_held_up(self):
        """Whether the connection is not read, which its client cannot bring about."""
        return self._connection.stream.paused

    def resume_held(self):
        """There is room for the rest, or nobody waits for it any more."""
        if self._hold is not None:
            self._hold.release()

    def give_up(self, why):
        """It held up others for too long."""
        self._connection.fail(QuotaExceeded(why))
