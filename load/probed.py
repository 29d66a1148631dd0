"""The broker's command with a probe inside, for the soak:
``python -m load.probed FLAGS``, the flags of ``gomq-py``.

Every second a JSON line on standard output says how late the loop was. A line on standard input asks for a
look at the process at rest: cyclic garbage is collected and free heap given back to the system first, so that
what is counted then is what the broker holds.
"""
from gevent import monkey; monkey.patch_all()  # noqa: E702 - before anything else is imported

import ctypes  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections import Counter  # noqa: E402

import gevent  # noqa: E402
import greenlet  # noqa: E402
from gevent.os import make_nonblocking, nb_read  # noqa: E402

from gomq_py import cli  # noqa: E402
from gomq_py.observability import garbage  # noqa: E402

LOOK_S = 0.02
TELL_S = 1.0


def watch_the_loop():
    """Measure how late a timer of LOOK_S fires; tell the worst and the mean of each second."""
    while True:
        lags = []
        told = time.monotonic()
        while time.monotonic() - told < TELL_S:
            before = time.monotonic()
            gevent.sleep(LOOK_S)
            lags.append(time.monotonic() - before - LOOK_S)
        tell(lag_ms=round(1000 * max(lags), 2), mean_lag_ms=round(1000 * sum(lags) / len(lags), 3))


def look_at_rest():
    """Answer each line of standard input with the number of objects, by type, and of greenlets that live.

    What was frozen counts too: a full collection of the broker's own freezes what it has looked at.
    """
    make_nonblocking(0)
    while nb_read(0, 100):  # not in a thread: one that waits in a read when the process ends aborts it
        garbage.collect_everything()
        gc.unfreeze()
        if hasattr(ctypes.CDLL(None), "malloc_trim"):
            ctypes.CDLL(None).malloc_trim(0)
        tell(**count_objects())
        gc.freeze()


def count_objects():
    """In a function of its own: a list of all objects that lived until the next look
    would keep every one of them.
    """
    objects = gc.get_objects()
    greenlets = sum(1 for thing in objects if isinstance(thing, greenlet.greenlet) and not thing.dead)
    types = Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in objects)
    return {"greenlets": greenlets, "objects": len(objects), "types": dict(types.most_common(60))}


def tell(**values):
    """One line to the parent."""
    os.write(1, json.dumps(values).encode() + b"\n")


if __name__ == "__main__":
    gevent.spawn(watch_the_loop)
    gevent.spawn(look_at_rest)
    sys.exit(cli.main(sys.argv[1:]))
