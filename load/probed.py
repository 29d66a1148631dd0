"""The broker's command with a probe inside, for the soak:
``python -m load.probed FLAGS``, the flags of ``gomq-py``.

Every second a JSON line on standard output says how late the loop was. A line on standard input asks for a
look at the process at rest: cyclic garbage is collected, objects are counted, and free heap is given back to
the system last, so that the pages there are then hold what the broker holds, and not what the look needed.
"""
from gevent import monkey; monkey.patch_all()  # noqa: E702 - before anything else is imported

import ctypes  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import posix  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections import Counter  # noqa: E402

import gevent  # noqa: E402
import greenlet  # noqa: E402
from gevent.os import make_nonblocking, nb_read  # noqa: E402

from gomq_py import cli  # noqa: E402
from gomq_py.observability import garbage  # noqa: E402
from gomq_py.observability.resources import give_memory_back  # noqa: E402

LOOK_S = 0.02
TELL_S = 1.0


class Heap(ctypes.Structure):
    """mallinfo2 of malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t) for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
            "keepcost",
        )
    ]


LIBC = ctypes.CDLL(None)
if hasattr(LIBC, "mallinfo2"):
    LIBC.mallinfo2.restype = Heap


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
        counts = count_objects()
        gc.freeze()
        give_memory_back()
        tell(**counts, held=allocated())


def count_objects():
    """In a function of its own: a list of all objects that lived until the next look
    would keep every one of them.
    """
    objects = gc.get_objects()
    greenlets = sum(1 for thing in objects if isinstance(thing, greenlet.greenlet) and not thing.dead)
    types = Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in objects)
    return {"greenlets": greenlets, "objects": len(objects), "types": dict(types.most_common(60))}


def allocated():
    """Octets that Python's allocator and the C library's have given out and not got back; 0 where that does
    not say so (not glibc).
    """
    if not hasattr(LIBC, "mallinfo2"):
        return 0
    heap = LIBC.mallinfo2()
    return in_arenas() + heap.uordblks + heap.hblkhd


def in_arenas():
    """Octets in blocks that Python's allocator has given out of its arenas. Python tells of them on standard
    error alone; there are none with PYTHONMALLOC=malloc.
    """
    with tempfile.TemporaryFile() as file:
        standard_error = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(standard_error, 2)
            posix.close(standard_error)  # gevent's os.close does so later
        file.seek(0)
        found = re.search(rb"# bytes in allocated blocks += +([0-9,]+)", file.read())
    return int(found[1].replace(b",", b"")) if found else 0


def tell(**values):
    """One line to the parent."""
    os.write(1, json.dumps(values).encode() + b"\n")


if __name__ == "__main__":
    gevent.spawn(watch_the_loop)
    gevent.spawn(look_at_rest)
    sys.exit(cli.main(sys.argv[1:]))
