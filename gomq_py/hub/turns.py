"""Turns: how long work that is done in one greenlet lets everybody else have theirs in between.

For work that somebody waits for: answers of the management door, an import of definitions. Work that nobody waits for is a job of the scheduler's.
"""
from gevent.event import Event

from gomq_py.hub.slice_clock import SliceClock
from gomq_py.hub.threads import give_way


def paced(objects, every=1):
    """The objects, giving way when what is done with them has had a slice's time. A generator; may switch.

    ``every``: objects between two looks at the clock, where nothing that is done with one takes more than some microseconds.
    """
    clock = SliceClock(every=every)
    for one in objects:
        yield one
        if clock.is_over():
            give_way()
            clock.begin()


def until_opened(queue):
    """Return when the queue no more ``is_opening``. May switch."""
    opened = Event()
    queue.when_opened(opened.set)
    opened.wait()
