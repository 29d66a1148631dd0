"""Garbage: keeping Python's cycle collector off what stays, for it goes through everything at once while everybody waits.

Only in a process of the broker's own, which says so when boot is over (``settle``); one that a broker is embedded in collects as it likes.
"""
import contextlib
import gc
from collections.abc import Iterator

_making = 0
_is_settled = False


def settle() -> None:
    """Boot is over, in a process of the broker's own: what it made stays, and is frozen.

    A full collection that looked at it again stalled everybody for 8 ms, with the management API for 31.
    """
    global _is_settled  # noqa: PLW0603 - as the collector is the process's, so is this
    gc.collect()
    gc.freeze()
    _is_settled = True


@contextlib.contextmanager
def held_while_making() -> Iterator[None]:
    """For work that makes very many objects that stay, such as an import: nothing is collected meanwhile, and what was made is frozen.

    Full collections during an import of 10 000 queues stalled everybody thrice, for up to 90 ms, and once more soon afterwards.
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


def collect_everything() -> None:
    """A full collection that looks at what was frozen, too. Holds everybody up for some milliseconds per 100 MB."""
    if _is_settled:
        gc.unfreeze()
    gc.collect()
    if _is_settled:
        gc.freeze()
