"""``python -m tests.cluster_rounds.child SWITCHES FLAGS...``: a node whose disk falls ill while a file is in
the folder SWITCHES, as leader and as follower (tests.support.ill_child).
"""
import errno
import os
import sys

from tests.support.ill_child import IllFiles, is_on  # patches the standard library first

from gomq_py import cli, node
from gomq_py.cluster import elected, membership
from gomq_py.config import settings

# A follower takes no room ahead of what it writes.
FOLLOWERS_GROWING = frozenset({"open_plain", "set_size", "write", "link"})


class FollowersFiles(IllFiles):
    """Files of a follower."""

    def about_to(self, call, subject):
        if call in FOLLOWERS_GROWING and is_on("full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().about_to(call, subject)


if __name__ == "__main__":
    # `enabled` is refused until all of it is there: this is the one place that lets it in
    settings.HAS_ELECTIONS = True
    node.Files = IllFiles
    membership.PlainFiles = elected.PlainFiles = FollowersFiles
    sys.exit(cli.main(sys.argv[2:]))
