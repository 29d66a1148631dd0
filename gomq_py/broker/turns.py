"""Turns: how long work that is done in one greenlet lets everybody else have theirs in between.

For work that somebody waits for: answers of the management door, an import of definitions. Work that nobody waits for is a job of the scheduler's.
"""
from gomq_py.hub import give_way


def paced(objects, slice_):
    """The objects, giving way after each ``slice_`` of them. A generator; may switch."""
    for number, one in enumerate(objects, 1):
        yield one
        if number % slice_ == 0:
            give_way()
