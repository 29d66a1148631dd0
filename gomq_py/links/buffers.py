"""Buffers of links: one read and one write buffer for all links of a hub, and the memory budget for messages
that targets have not confirmed yet.

Both buffers are empty between two turns of the loop. Unconfirmed messages are kept and counted by MemoryBudget: a
slow target costs memory up to its link's share. Each link may keep a part of the memory that is left, so a
few links get all they need, many links get less each, and the next link always finds something. No link waits
for another: below LEAST_OCTETS a link may always take more, and above it the link goes on when its own target
confirms. When the whole budget is used, half as much again is in reserve, and one account may take half of
what is left of the reserve: so the links of one user leave something for those of another.
"""
from weakref import WeakKeyDictionary

from gomq_py.links.relay import INPUT_OCTETS, OUTPUT_OCTETS

# All links together: a tenth of what a machine with 1 GiB has before its memory alarm.
ALL_OCTETS = 64 * 1024 * 1024
# One link: more than any target has in flight at once. Up to four links may have it.
MOST_OCTETS = 8 * 1024 * 1024
# Every link may keep one read, whatever the others keep.
LEAST_OCTETS = 64 * 1024
# A link may keep a PARTS-th of what is left: 4 links keep half of the budget, 50 links nine tenths, evenly.
PARTS = 4
_OF_HUBS: WeakKeyDictionary = WeakKeyDictionary()


class MemoryBudget:
    """Memory budget of the links in one hub. ``kept_octets``: bytes that all of them keep now. An account is
    (user who set the link, virtual host).
    """

    __slots__ = ("kept_octets", "_of_accounts", "_all_octets", "_most_octets")

    def __init__(self, all_octets=ALL_OCTETS, most_octets=MOST_OCTETS):
        self.kept_octets = 0
        self._of_accounts = {}
        self._all_octets, self._most_octets = all_octets, most_octets

    def limit(self, account=None):
        """Bytes at which a link of this account stops reading its source for now."""
        left = self._all_octets - self.kept_octets
        reserve = self._all_octets // 2 + min(0, left)
        part = max(left, reserve // 2 - self._of_accounts.get(account, 0)) // PARTS
        return max(LEAST_OCTETS, min(self._most_octets, part))

    def keep(self, octets, account=None):
        """Count ``octets`` more, or fewer if negative, as kept."""
        self.kept_octets += octets
        kept = self._of_accounts.pop(account, 0) + octets
        if kept:
            self._of_accounts[account] = kept


class LinkBuffers:
    """``input`` and ``output``: bytearrays, with their memoryviews beside them. ``memory_budget``: the links'
    MemoryBudget.
    """

    def __init__(self):
        self.input, self.output = bytearray(INPUT_OCTETS), bytearray(OUTPUT_OCTETS)
        self.input_view, self.output_view = memoryview(self.input), memoryview(self.output)
        self.memory_budget = MemoryBudget()


def buffers_of(hub):
    """The LinkBuffers of a hub, made at the first call."""
    buffers = _OF_HUBS.get(hub)
    if buffers is None:
        buffers = _OF_HUBS[hub] = LinkBuffers()
    return buffers
