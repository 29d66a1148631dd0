"""Hub buffers: one input and one output buffer for all connections of a hub.

Never module-level (several brokers may live in one process), never live across a switch: what a connection
has not finished with at the end of its turn, it copies out.
"""
from gomq_py import octets

# 64 KiB in and 128 KiB out: 1.2 times the rate of 128/128, 1.4 times on consuming;
# both stay in the second-level cache.
INPUT_OCTETS = 64 * 1024
OUTPUT_OCTETS = 128 * 1024
# Method and header frames that may stand before a body frame of the largest size, kept together with it.
MARGIN_OCTETS = 4 * 1024
# What one message's properties are rewritten in: MQTT has 64 KiB of them at the most.
SCRATCH_OCTETS = 64 * 1024
# Spare buffers that connections gather output in between two polls of the loop. A small one does for a few
# messages, which is all that most get at once; so many of each are kept for the next poll.
SMALL_SPARE_OCTETS, SPARE_OCTETS = 2 * 1024, 64 * 1024
SPARES = 64


class HubBuffers:
    """``input``: ``reserve`` octets of room for a connection's incomplete tail, then ``input_octets`` to read
    into, which are ``input_room``. ``output``: where deliveries are built; ``scratch()``: where parts of one
    of them are.

    ``frame_max`` is the largest frame any connection of this hub may negotiate; it sets the reserve.
    """

    __slots__ = (
        "input", "output", "input_view", "input_room", "output_view", "reserve", "input_octets",
        "output_octets", "input_at", "output_at", "_scratch", "_small_spares", "_spares",
    )

    def __init__(self, frame_max=131072, input_octets=INPUT_OCTETS, output_octets=OUTPUT_OCTETS):
        self.reserve = frame_max + 8 + MARGIN_OCTETS
        self.input_octets = input_octets
        self.output_octets = output_octets
        self.input = bytearray(self.reserve + input_octets)
        self.output = bytearray(output_octets)
        self.input_view = memoryview(self.input)
        self.input_room = self.input_view[self.reserve:]
        self.output_view = memoryview(self.output)
        self.input_at = octets.pointer(self.input)
        self.output_at = octets.pointer(self.output)
        self._scratch = None
        self._small_spares = []
        self._spares = []

    def scratch(self):
        """A bytearray of SCRATCH_OCTETS, for whoever fills and reads it in one go."""
        if self._scratch is None:
            self._scratch = bytearray(SCRATCH_OCTETS)
        return self._scratch

    def take_spare(self, is_small):
        """A bytearray of SMALL_SPARE_OCTETS or SPARE_OCTETS, the caller's until it is given back."""
        spares = self._small_spares if is_small else self._spares
        if spares:
            return spares.pop()
        return bytearray(SMALL_SPARE_OCTETS if is_small else SPARE_OCTETS)

    def give_spare(self, spare):
        """The end of take_spare()."""
        spares = self._small_spares if len(spare) == SMALL_SPARE_OCTETS else self._spares
        if len(spares) < SPARES:
            spares.append(spare)
