"""Turns: how long work that is done in one greenlet lets everybody else have theirs in between.

For work that somebody waits for: answers of the management door, an import of definitions. Work that nobody
waits for is a job of the scheduler's.
"""
import gevent

from gomq_py.hub.slice_clock import SliceClock

# Any time there is: what counts is that it takes the loop through a poll.
_SHORTEST_S = 1e-4


def give_way():
    """Let the loop look at every socket and timer before going on. May switch.

    ``gevent.sleep(0)`` does not: gevent runs up to 50 such callbacks between two polls, which with slices of
    2 ms held messages up for 100 ms.
    """
    gevent.sleep(_SHORTEST_S)


def paced(objects, every=1):
    """The objects, giving way when what is done with them has had a slice's time. A generator; may switch.

    ``every``: objects between two looks at the clock, where nothing that is done with one takes
    more than some microseconds.
    """
    clock = SliceClock(every=every)
    for one in objects:
        yield one
        if clock.is_over():
            give_way()
            clock.begin()
