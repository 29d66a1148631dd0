"""``gomq-py`` and ``python -m gomq_py``: the broker.

Patches the standard library first, for the libraries the broker carries; broker code itself never relies on
it. gevent would look for plugins to tell of that among all installed packages, with modules for mail and
archives that a broker has no use for: 3 MB; a broker starts no processes, either.
"""
from gevent import config, events, monkey

config.track_greenlet_tree = False  # who spawned whom: 1.5 KiB for each greenlet, and nobody looks
events.notify_and_call_entry_points = events.notify
monkey.patch_all(subprocess=False)  # before any other import

import sys  # noqa: E402

from gomq_py import cli  # noqa: E402


def main() -> int:
    """Run the broker until it is told to stop; returns the exit code."""
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
