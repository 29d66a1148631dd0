"""Garbage: keeping Python's cycle collector off what stays, for it goes through everything at once while
everybody waits.

Only in a process of the broker's own, which says so when boot is over (``settle``); one that a broker is
embedded in collects as it likes.
"""
import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from typing import Any

# CPU seconds that a full collection may take without what it looked at being frozen: the next one looks at
# that again, and at what has come since.
PAUSE_S = 0.002
# Python's but for the last, a full collection after 21 000 new objects instead of 70 000: that one takes 5 to
# 8 ms instead of 30.
THRESHOLDS = (700, 10, 3)

_making = 0
_is_settled = False
_began_s = 0.0


def settle() -> None:
    """Boot is over, in a process of the broker's own: what it made stays, and is frozen.

    A full collection that looked at it again stalled everybody for 8 ms, with the management API for 31.
    """
    global _is_settled  # noqa: PLW0603 - as the collector is the process's, so is this
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    if not _is_settled:
        gc.callbacks.append(_freeze_what_takes_long)
    _is_settled = True


def _freeze_what_takes_long(phase: str, info: dict[str, Any]) -> None:
    """Called before and after each collection: what made a full one long stays, as a rule, and is not looked
    at by the next one.

    With 100 000 queues a full collection took half a second, and came again with each quarter more of them.
    What is frozen and goes away later goes as soon as nobody has it any more: queues, channels and
    connections hold themselves in no circle once they have ended, which tests see to.
    """
    global _began_s  # noqa: PLW0603
    if info["generation"] < 2:
        return
    if phase == "start":
        _began_s = time.thread_time()
        return
    took_s, _began_s = time.thread_time() - _began_s, 0.0  # no number stays that was made amid what is freed
    if took_s > PAUSE_S:
        gc.freeze()


@contextlib.contextmanager
def held_while_making() -> Iterator[None]:
    """For work that makes very many objects that stay, such as an import: nothing is collected meanwhile, and
    what was made is frozen.

    Full collections during an import of 10 000 queues stalled everybody thrice, for up to 90 ms, and once
    more soon afterwards.
    """
    global _making  # noqa: PLW0603
    if not _is_settled:
        yield
        return
    _making += 1
    gc.disable()
    try:
        yield
    finally:
        _making -= 1
        if _making == 0:
            gc.freeze()
            gc.enable()


def let_go_of_spares() -> None:
    """Free what the interpreter keeps of objects that have gone, for the next ones: free lists, which a full
    collection empties, and names in its cache of methods. gevent asks for ``stop`` with a new string each
    time that a watcher ends within its callback, and the cache keeps up to 4096 of these.
    """
    if not _is_settled:
        return
    clear = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if clear is not None:
        clear()
    gc.collect()


def collect_everything() -> None:
    """A full collection that looks at what was frozen, too.

    Holds everybody up for some milliseconds per 100 MB.
    """
    if _is_settled:
        gc.unfreeze()
    gc.collect()
    if _is_settled:
        gc.freeze()
