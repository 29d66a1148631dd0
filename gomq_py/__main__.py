"""``gomq-py`` and ``python -m gomq_py``: the broker.

Patches the standard library first, for the libraries the broker carries; broker code itself never relies on it.
"""
from gevent import monkey; monkey.patch_all()  # noqa: E702 - before anything else is imported

import sys  # noqa: E402

from gomq_py import cli  # noqa: E402


def main() -> int:
    """Run the broker until it is told to stop; returns the exit code."""
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
