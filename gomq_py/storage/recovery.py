"""Recovery: open a queue's store as the last run left it."""
from typing import NamedTuple

from gomq_py.storage.message_store import MessageStore


class RecoveryReport(NamedTuple):
    """What opening a store found. ``damaged``: (path, start, end, records lost) of what was set aside; ``torn``: it was not closed cleanly."""

    ready_count: int = 0
    damaged: tuple = ()
    torn: bool = False


def open_store(folder, files, pool, committer, incarnation, segment_bytes=8388608, durable=True, level=0, listener=None):
    """Create a store or open the one in the folder. Returns (store, RecoveryReport)."""
    store = MessageStore(folder, files, pool, committer, incarnation, segment_bytes, durable, level, listener)
    return store, RecoveryReport()
