"""Turns: how long work on an answer lets everybody else have theirs in between."""
import gevent

# Any time there is: what counts is that it takes the loop through a poll.
_SHORTEST_S = 1e-4


def give_way():
    """Let the loop look at every socket and timer before going on. May switch.

    ``give_way()`` does not: gevent runs up to 50 such callbacks between two polls, which with slices of 2 ms held messages up for 100 ms.
    """
    gevent.sleep(_SHORTEST_S)
