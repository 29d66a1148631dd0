"""Shares: how much the links of a broker may keep of what their targets have not confirmed.

A target that takes nothing costs memory up to the link's share, and there may be hundreds of them. Each link
may keep a part of what is left of the memory for all: few links as much as each ever needs, many the less the
more they are, and there is always something left for the next one. No link waits for another: one that keeps
less than LEAST_OCTETS may take more whatever the others do, and one that keeps more goes on when its own
target confirms. When all of it is kept there is half as much again, of whose rest whoever set links in a
virtual host may keep a half: so links of one user leave something for those of another.
"""

# Of all links: a tenth of what a small broker, of a machine with 1 GiB, has before its memory alarm.
ALL_OCTETS = 64 * 1024 * 1024
# Of one link: more than any target has on its way at once. Up to four links have it.
MOST_OCTETS = 8 * 1024 * 1024
# And so much in any case: a read.
LEAST_OCTETS = 64 * 1024
# What is left, divided by this, is the most of each: 4 links keep half of all, 50 nine tenths, all the same.
PARTS = 4


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
