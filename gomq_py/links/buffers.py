"""Buffers of links: what is read into and written from in one go, shared by all links of a hub.

Nothing stays in them between two turns of the loop; how much links keep beside them is counted here, too.
"""
from weakref import WeakKeyDictionary

from gomq_py.links.relay import INPUT_OCTETS, OUTPUT_OCTETS
from gomq_py.links.shares import Shares

_OF_HUBS: WeakKeyDictionary = WeakKeyDictionary()


class LinkBuffers:
    """``input`` and ``output`` are bytearrays, beside their views; ``shares`` the links' Shares."""

    def __init__(self):
        self.input, self.output = bytearray(INPUT_OCTETS), bytearray(OUTPUT_OCTETS)
        self.input_view, self.output_view = memoryview(self.input), memoryview(self.output)
        self.shares = Shares()


def buffers_of(hub):
    """The LinkBuffers of a hub; made for its first link."""
    buffers = _OF_HUBS.get(hub)
    if buffers is None:
        buffers = _OF_HUBS[hub] = LinkBuffers()
    return buffers
