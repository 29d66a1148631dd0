"""Flush threads: flush files in native threads that never take the interpreter's lock.

Used by storage.flush.flusher. The code is C in ``flush_threads.pxd``; interpreted code has no such threads. A
flush thread sleeps on its own semaphore, flushes the files passed to it, and writes to an eventfd, which the
event loop watches. That is four system calls per flush; a Python thread would take the interpreter's lock
twice and make ten futex calls.
"""
from typing import Any


def is_native():
    """Return True if this module is compiled. Only then are there flush threads."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
