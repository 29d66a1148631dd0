"""Buffers of links: what is read into and written from in one go, shared by all links of a hub, and how much
links may keep beside that.

Nothing stays in the two buffers between two turns of the loop. What the targets of links have not confirmed
is kept, and counted by Shares. A target that takes nothing costs memory up to the link's share, and there may
be hundreds of them. Each link may keep a part of what is left of the memory for all: few links as much as
each ever needs, many the less the more they are, and there is always something left for the next one. No link
waits for another: one that keeps less than LEAST_OCTETS may take more whatever the others do, and one that
keeps more goes on when its own target confirms. When all of it is kept there is half as much again, of whose
rest whoever set links in a virtual host may keep a half: so links of one user leave something for those of
another.
"""
from weakref import WeakKeyDictionary

from gomq_py.links.relay import INPUT_OCTETS, OUTPUT_OCTETS

# Of all links: a tenth of what a small broker, of a machine with 1 GiB, has before its memory alarm.
ALL_OCTETS = 64 * 1024 * 1024
# Of one link: more than any target has on its way at once. Up to four links have it.
MOST_OCTETS = 8 * 1024 * 1024
# And so much in any case: a read.
LEAST_OCTETS = 64 * 1024
# What is left, divided by this, is the most of each: 4 links keep half of all, 50 nine tenths, all the same.
PARTS = 4
_OF_HUBS: WeakKeyDictionary = WeakKeyDictionary()


class Shares:
    """Of the links in one hub. ``kept_octets``: what all of them keep now. An account is (who set the link,
    virtual host).
    """

    __slots__ = ("kept_octets", "_of_accounts", "_all_octets", "_most_octets")

    def __init__(self, all_octets=ALL_OCTETS, most_octets=MOST_OCTETS):
        self.kept_octets = 0
        self._of_accounts = {}
        self._all_octets, self._most_octets = all_octets, most_octets

    def limit(self, account=None):
        """A link that keeps as many octets as this, or more, takes no more for now."""
        left = self._all_octets - self.kept_octets
        reserve = self._all_octets // 2 + min(0, left)
        part = max(left, reserve // 2 - self._of_accounts.get(account, 0)) // PARTS
        return max(LEAST_OCTETS, min(self._most_octets, part))

    def keep(self, octets, account=None):
        """So many more are kept, or less."""
        self.kept_octets += octets
        kept = self._of_accounts.pop(account, 0) + octets
        if kept:
            self._of_accounts[account] = kept


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
