"""Excludes long-lived objects from Python's cycle collector, because a full collection stops the broker.

The broker's own process calls ``freeze`` after the start. A program that embeds a broker does not, and keeps
its collector's settings.
"""
import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from typing import Any

# CPU seconds of a full collection above which all objects are frozen; a shorter one leaves them to the next
# collection.
PAUSE_S = 0.002
# Python's but for the last: a full collection after 21 000 new objects instead of 70 000 takes 5 to 8 ms
# instead of 30.
THRESHOLDS = (700, 10, 3)

_making = 0
_is_frozen = False
_began_s = 0.0


def freeze() -> None:
    """Freeze all present objects (gc.freeze) after the broker's start, so that full collections skip them."""
    # A process of the broker's own calls this after boot. Otherwise each full collection would look at these
    # objects, for 8 ms, or 31 ms with the management API.
    global _is_frozen  # noqa: PLW0603 - the collector is global, too
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    if not _is_frozen:
        gc.callbacks.append(_freeze_what_takes_long)
    _is_frozen = True


def _freeze_what_takes_long(phase: str, info: dict[str, Any]) -> None:
    """Freeze all objects after a long full collection. A callback of ``gc``, called before and after each."""
    # Most objects live long, and the next collection skips them. With 100 000 queues a full collection took
    # half a second, and another came whenever the number of objects had grown by a quarter. Reference
    # counting still frees frozen objects: closed queues, channels and connections are in no reference cycle,
    # which tests check.
    global _began_s  # noqa: PLW0603
    if info["generation"] < 2:
        return
    if phase == "start":
        _began_s = time.thread_time()
        return
    took_s, _began_s = time.thread_time() - _began_s, 0.0  # keeps no number object made amid freed objects
    if took_s > PAUSE_S:
        gc.freeze()


@contextlib.contextmanager
def held_while_making() -> Iterator[None]:
    """Context manager: no cycle collections while many long-lived objects are made; then they are frozen. Has
    no effect before ``freeze()``.
    """
    # Full collections during an import of 10 000 queues stalled the broker three times, for up to 90 ms, and
    # once more soon afterwards.
    global _making  # noqa: PLW0603
    if not _is_frozen:
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
    """Empty CPython's caches of attributes and, by a full collection, its free lists, after freeze()."""
    # gevent looks up ``stop`` with a new string each time that a watcher ends within its callback, and the
    # cache keeps up to 4096 of these strings.
    if not _is_frozen:
        return
    clear = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if clear is not None:
        clear()
    gc.collect()


def collect_everything() -> None:
    """Run a full collection that includes frozen objects. Stops the broker: some milliseconds per 100 MB."""
    if _is_frozen:
        gc.unfreeze()
    gc.collect()
    if _is_frozen:
        gc.freeze()
