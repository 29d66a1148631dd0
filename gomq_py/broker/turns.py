"""Turns: how long work that is done in one greenlet lets everybody else have theirs in between.

For work that somebody waits for: answers of the management door, an import of definitions. Work that nobody waits for is a job of the scheduler's.
"""
import gevent

# Any time there is: what counts is that it takes the loop through a poll.
_SHORTEST_S = 1e-4


def give_way():
    """Let the loop look at every socket and timer before going on. May switch.

    ``gevent.sleep(0)`` does not: gevent runs up to 50 such callbacks between two polls, which with slices of 2 ms held messages up for 100 ms.
    """
    gevent.sleep(_SHORTEST_S)


def paced(objects, slice_):
    """The objects, giving way after each ``slice_`` of them. A generator; may switch."""
    for number, one in enumerate(objects, 1):
        yield one
        if number % slice_ == 0:
            give_way()
