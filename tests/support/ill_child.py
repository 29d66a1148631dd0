"""``python -m tests.support.ill_child SWITCHES FLAGS...``: the broker's command on a disk that is ill while a
file is in the folder SWITCHES.

``full``: nothing gets more room; ``broken``: flushes fail; ``stuck``: flushes hang.
"""
from gevent import monkey; monkey.patch_all()  # noqa: E702 - as the command does

import errno  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

from gomq_py import cli, node  # noqa: E402
from tests.support.waiting import in_time, wait_until
from tests.support.watched_files import FLUSHES, WatchedFiles  # noqa: E402

GROWING = frozenset({
    "create", "create_unnamed", "open_log", "append", "reserve", "allocate", "extend", "make_folder", "make",
    "make_unnamed",
})
SWITCHES = sys.argv[1]
LONGEST_S = in_time(60)  # a test that forgets to recover ends all the same


class IllFiles(WatchedFiles):
    """Files of such a disk."""

    def about_to(self, call, subject):
        if call in GROWING and is_on("full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if call in FLUSHES:
            wait_until(lambda: not is_on("stuck"), LONGEST_S)
            if is_on("broken"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))


def is_on(switch):
    """Whether the disk is ill in this way now."""
    return os.path.exists(os.path.join(SWITCHES, switch))


if __name__ == "__main__":
    node.Files = IllFiles
    sys.exit(cli.main(sys.argv[2:]))
