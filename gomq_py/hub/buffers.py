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


class HubBuffers:
    """``input``: ``reserve`` octets of room for a connection's incomplete tail, then ``input_octets`` to read
    into. ``output``: where deliveries are built.

    ``frame_max`` is the largest frame any connection of this hub may negotiate; it sets the reserve.
    """

    __slots__ = (
        "input", "output", "input_view", "output_view", "reserve", "input_octets", "output_octets",
        "input_at", "output_at",
    )

    def __init__(self, frame_max=131072, input_octets=INPUT_OCTETS, output_octets=OUTPUT_OCTETS):
        self.reserve = frame_max + 8 + MARGIN_OCTETS
        self.input_octets = input_octets
        self.output_octets = output_octets
        self.input = bytearray(self.reserve + input_octets)
        self.output = bytearray(output_octets)
        self.input_view = memoryview(self.input)
        self.output_view = memoryview(self.output)
        self.input_at = octets.pointer(self.input)
        self.output_at = octets.pointer(self.output)
