"""Flush threads: flush files in native threads that never take the interpreter's lock.

A leaf, used by flusher, written as C in ``flush_threads.pxd``; interpreted code has no such threads. A flush
thread sleeps on a semaphore of its own, flushes the files passed to it, and writes to an eventfd, which the
hub's loop watches. That is four system calls for each flush; a Python thread would take the interpreter's
lock twice and make ten futex calls.
"""
from typing import Any


def is_native():
    """Whether this module is compiled: only then are there flush threads."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
