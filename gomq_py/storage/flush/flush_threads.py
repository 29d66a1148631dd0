"""Flush threads: flush files without the interpreter's lock.

A leaf below flusher; the compiled twin is ``flush_threads.pxd``, and here is nothing: whoever runs
interpreted flushes in threads that Python knows. A thread of these sleeps on a semaphore of its own, flushes
what it finds wanted, and writes to an eventfd, which the hub's loop watches. So a flush costs four system
calls beside its own, wakes one thread, and nobody waits for the interpreter's lock; a thread of Python's
takes it twice for each flush, from the hub, and asks the system ten times to be woken (futex).
"""
from typing import Any


def is_native():
    """Whether there are such threads."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
