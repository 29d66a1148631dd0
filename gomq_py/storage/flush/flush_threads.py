"""Flush threads: flush files in native threads that never take the interpreter's lock.

A leaf below flusher, written as C in ``flush_threads.pxd``. If this module is interpreted, there are no flush
threads, and Python's threads flush. A flush thread sleeps on a semaphore of its own, flushes the files it is
given, and writes to an eventfd, which the hub's loop watches. A flush costs four system calls beside its own
and wakes one thread, and nothing waits for the interpreter's lock. A Python thread takes that lock twice for
each flush, from the hub, and makes ten futex calls.
"""
from typing import Any


def is_native():
    """Whether this module is compiled: only then are there flush threads."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
