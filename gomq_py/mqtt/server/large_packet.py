"""Large packets: gathers, read by read, a packet too large for the input buffer.

The memory comes from the memory budget for message bodies (hub.budget). Rights and payload size of a PUBLISH
are checked as soon as its head has arrived; after a refusal no more bytes are kept.
"""
from gomq_py.mqtt.server.flows import Refusal
from gomq_py.mqtt.server.publish import check_head, is_answered, refuse_whole
from gomq_py.mqtt.wire.codec import decode_publish_head
from gomq_py.mqtt.wire.errors import PacketTooLarge, QuotaExceeded

WAITS_FOR = "room for message bodies"
# Most octets of a PUBLISH before its topic is known: only properties can stand in front of an alias.
HEAD_MAX = 256 * 1024


class LargePacket:
    """Gathers one packet of ``size`` bytes. ``octets``: a bytearray, first ``room`` bytes for the caller's
    use, then the bytes received. ``is_publish``: the packet is a PUBLISH, whose head is
    checked. ``limits``: PacketLimits.
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
        """Return the number of bytes that have not arrived."""
        return self._left

    def add(self, octets):
        """Add the next bytes. If memory is short, pauses reading and returns False. Raises MQTTError."""
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
        self._hold = self._connection.stream.pause_reading(WAITS_FOR)
        return False

    def _check(self):
        head = decode_publish_head(self.octets, self._room, self._connection.version, self._limits)
        if head is None:
            if len(self.octets) > HEAD_MAX:
                raise PacketTooLarge(f"PUBLISH: no topic in its first {HEAD_MAX} bytes")
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
        """If the head was refused, answer the complete packet and return True. Raises MQTTError."""
        if self._refusal is None:
            return False
        refuse_whole(self._connection, self._head, self._refusal)
        return True

    def end(self):
        """Return the memory to the budget, because the packet is complete or abandoned."""
        self._connection.hub.bodies.release(self)
        self.resume_held()

    # for the budget

    @property
    def output(self):
        return self._connection.output

    @property
    def is_held_up(self):
        """True if the broker itself has paused reading."""
        # The client is then not to blame for a delay.
        return self._connection.stream.paused

    def resume_held(self):
        """Resume reading, because there is memory for more bytes or the packet is abandoned."""
        if self._hold is not None:
            self._hold.release()

    def give_up(self, why):
        """End the connection, because the packet has occupied shared memory for too long."""
        self._connection.fail(QuotaExceeded(why))
