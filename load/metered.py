"""The broker's command with a meter inside, for ``load.hostile``:
``python -m load.metered FLAGS``, the flags of ``gomq-py``.

Each line on standard input is answered with a JSON line: the longest piece of the hub's CPU time since the
last one, and all of them.
"""
from gevent import monkey; monkey.patch_all()  # noqa: E702 - before anything else is imported

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

import gevent  # noqa: E402
from gevent.os import make_nonblocking, nb_read  # noqa: E402

from gomq_py import cli  # noqa: E402
from load.hub_pieces import HubPieces  # noqa: E402


def answer():
    """Tell what was measured whenever somebody asks."""
    pieces = HubPieces(gevent.get_hub().loop)
    pieces.start()
    make_nonblocking(0)
    while nb_read(0, 100):
        longest_s, total_s = pieces.take()
        os.write(
            1,
            json.dumps(
                {"longest_ms": round(1000 * longest_s, 1), "total_ms": round(1000 * total_s, 1)}
            ).encode() + b"\n",
        )


if __name__ == "__main__":
    gevent.spawn(answer)
    sys.exit(cli.main(sys.argv[1:]))
