"""``with no_switch():`` fails when the code inside gives way to another greenlet."""
from contextlib import contextmanager

import greenlet


@contextmanager
def no_switch():
    """AssertionError on any greenlet switch of this thread inside the block;
    what a change of state must not do.
    """
    switches = []

    def trace(event, where):
        switches.append((event, where))

    earlier = greenlet.settrace(trace)
    try:
        yield
    finally:
        greenlet.settrace(earlier)
    assert not switches, f"switched greenlets: {switches}"
