"""Acknowledgements: PUBACK, PUBREC, PUBREL and PUBCOMP caused by one read, as octets that leave together.

Below inbound and outbound. No Python object per packet; never sends and never switches.
"""
from gomq_py import octets
from gomq_py.mqtt.wire import frames

# Octets of the longest acknowledgement, which has a reason code.
ANSWER_MAX = 5
# Octets allocated first for the answers of a read, and the most that are kept for the next read.
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
        """Add one acknowledgement. Before MQTT 5 its reason code is left out."""
        if self.used + ANSWER_MAX > self.room:
            self._make_room(max(2 * self.room, ROOM))
        self.used = frames.write_acknowledgement(
            self.at, self.used, self.version, kind, packet_identifier, reason_code)

    def take(self):
        """Remove all acknowledgements and return them as bytes."""
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
