"""Replies: sends the answers of a channel in order, from the channel's handlers to the connection's output.

Most replies leave at once. A reply that promises something durable waits for the disk, and holds back only
the later replies of its channel. Actions (start a consumer after its consume-ok) take their turn among the
replies. Never writes out of order, never blocks.
"""
from collections import deque
from functools import partial

WAITS_FOR = "answers before its own to leave"


class Replies:
    """Sends the answers of one channel in order.

    ``write(octets)`` sends. ``on_failure(error)`` is called once if the disk fails to keep what a reply
    promises.
    """

    __slots__ = ("_write", "_when_safe", "_on_failure", "_line", "_closed")

    def __init__(self, write, when_safe, on_failure):
        """``when_safe(callback)`` calls back with an error or None once all earlier changes are safe, perhaps
        at once.
        """
        self._write = write
        self._when_safe = when_safe
        self._on_failure = on_failure
        self._line = None
        self._closed = False

    def send(self, octets):
        """Send after all earlier replies."""
        if self._closed:
            return
        if self._line:
            self._line.append(_Waiting(octets, None, True))
        else:
            self._write(octets)

    def act(self, action):
        """Call ``action()`` after all earlier replies."""
        if self._closed:
            return
        if self._line:
            self._line.append(_Waiting(None, action, True))
        else:
            action()

    def send_when_safe(self, octets, action=None):
        """After all earlier replies, and when all changes so far are safe, send ``octets`` (None: nothing)
        and call ``action()``.
        """
        if self._closed:
            return
        place = self.keep_place(octets, action)
        self._when_safe(lambda error: self.fill(place, error))

    def keep_place(self, octets, action=None):
        """Keep a place for ``octets`` and ``action``, and return the place. Later replies wait until ``fill``
        is called with the place.
        """
        place = _Waiting(octets, action, False)
        if not self._closed:
            if self._line is None:
                self._line = deque()
            self._line.append(place)
        return place

    def fill(self, place, error):
        """Send a place's octets, whose promise is on disk. With an ``error``, call ``on_failure`` instead."""
        if self._closed:
            return
        if error is not None:
            self._on_failure(error)
            return
        place.ready = True
        while self._line and self._line[0].ready:
            first = self._line.popleft()
            if first.octets is not None:
                self._write(first.octets)
            if first.action is not None:
                first.action()

    def close(self):
        """Forget the waiting replies: the channel has ended."""
        self._closed = True
        self._line = None
        self._write = self._when_safe = self._on_failure = None  # they refer to the channel

    @property
    def waiting_count(self):
        """Count of replies held back."""
        return len(self._line) if self._line else 0


def in_turn(handler):
    """Wrap ``handler``, so that it runs once the channel's earlier answers have left; the client is not read
    meanwhile.

    Used for methods that cause deliveries or confirms, which leave ahead of waiting answers. Suppose a get-ok
    with delivery tag 1 waits: if delivery 2 left first, an ack of all up to 2 would settle the unseen message
    1.
    """
    def handle(channel, method):
        if channel.replies.waiting_count:
            channel.go_on_later(channel.replies.act, partial(handle, channel, method), WAITS_FOR)
        else:
            handler(channel, method)

    return handle


class _Waiting:
    """A place among the replies: octets to write, then an action; either may be None."""

    __slots__ = ("octets", "action", "ready")

    def __init__(self, octets, action, ready):
        self.octets = octets
        self.action = action
        self.ready = ready
