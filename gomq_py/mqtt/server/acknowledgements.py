"""Acknowledgements: PUBACK, PUBREC, PUBREL and PUBCOMP that one read gives rise to, as octets that leave
together.

Below inbound and outbound. No Python object per packet; never sends and never switches.
"""
from gomq_py import octets
from gomq_py.mqtt.wire import frames

# The longest: one with a reason code.
ANSWER_MAX = 5
# Octets of a read's answers, at first, and what is kept for the next one.
ROOM = 160
ROOM_KEPT = 4096


class Acknowledgements:
    """``used``: octets that have been added since take()."""

    __slots__ = ("version", "used", "room", "answers", "at")

    def __init__(self, version):
        self.version = version
        self.used = self.room = 0
        self.answers = bytearray()
        self.at = octets.pointer(self.answers)

    def add(self, kind, packet_identifier, reason_code):
        """One more. The reason code is left out before MQTT 5, which has none."""
        if self.used + ANSWER_MAX > self.room:
            self._make_room(max(2 * self.room, ROOM))
        self.used = frames.write_acknowledgement(
            self.at, self.used, self.version, kind, packet_identifier, reason_code)

    def take(self):
        """All of them, as bytes; none are left."""
        taken = bytes(self.answers[:self.used])
        self.used = 0
        if self.room > ROOM_KEPT:
            self._make_room(0)
        return taken

    def _make_room(self, room):
        answers = bytearray(room)
        if self.used:
            answers[:self.used] = self.answers[:self.used]
        self.answers = answers
        self.at = octets.pointer(answers)
        self.room = room
