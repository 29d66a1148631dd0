"""Replies: sends the answers of a channel in order, from the channel's handlers to the connection's output.

Most replies leave at once. A reply about a durable change waits until the change is on disk, and holds back
only the later replies of its channel. Actions (for example, start a consumer after consume-ok) are called in
the same order. Never blocks.
"""
from collections import deque
from functools import partial

from gomq_py.amqp.wire.frames import content_frames, method_frame

WAITS_FOR = "answers before its own to leave"


class Replies:
    """Sends the answers of one channel in the order of its requests, though some must wait for the disk.
    ``write(octets)`` sends bytes. ``on_failure(error)``: called if a change could not be put on disk.
    """

    __slots__ = ("_write", "_when_safe", "_on_failure", "_line", "_closed")

    def __init__(self, write, when_safe, on_failure):
        """``when_safe(callback)`` calls ``callback(error or None)`` when all earlier changes are on disk,
        perhaps before ``when_safe()`` returns.
        """
        self._write = write
        self._when_safe = when_safe
        self._on_failure = on_failure
        self._line = None
        self._closed = False

    def send(self, octets):
        if self._closed:
            return
        if self._line:
            self._line.append(_Waiting(octets, None, True))
        else:
            self._write(octets)

    def act(self, action):
        if self._closed:
            return
        if self._line:
            self._line.append(_Waiting(None, action, True))
        else:
            action()

    def send_when_safe(self, octets, action=None):
        """Send bytes (or None) in order, then call ``action()``, once all earlier changes are on disk."""
        if self._closed:
            return
        place = self.keep_place(octets, action)
        self._when_safe(lambda error: self.fill(place, error))

    def keep_place(self, octets, action=None):
        """Queue a reply, and return it. The reply, its ``action()`` and all later replies wait for fill()."""
        place = _Waiting(octets, action, False)
        if not self._closed:
            if self._line is None:
                self._line = deque()
            self._line.append(place)
        return place

    def fill(self, place, error):
        """Let the queued reply ``place`` be sent in order. With an ``error``, call ``on_failure`` instead."""
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
        """Drop all waiting replies, because the channel has ended."""
        self._closed = True
        self._line = None
        self._write = self._when_safe = self._on_failure = None  # they refer to the channel

    @property
    def waiting_count(self):
        """Number of replies that wait for the disk or behind another reply."""
        return len(self._line) if self._line else 0


def in_turn(handler):
    """Decorate a method handler so that it runs after the channel's earlier answers have been sent. Until
    then the client is not read. For methods that cause deliveries or confirms.
    """
    # These do not wait for answers. Example: a get-ok with delivery tag 1 waits; if delivery 2 were sent
    # first, the client's ack of all up to 2 would settle a message that it has not seen.
    def handle(channel, method):
        if channel.replies.waiting_count:
            channel.go_on_later(channel.replies.act, partial(handle, channel, method), WAITS_FOR)
        else:
            handler(channel, method)

    return handle


def message_frames(channel, method_class, message, properties, body, **values):
    """Return the frames that bring ``message`` to the client, as bytes. ``method_class``: class of the method
    in front. ``values``: those of its fields, except exchange and routing key.
    """
    method = method_class(
        exchange=_text(message.get_exchange()), routing_key=_text(message.get_routing_key()), **values)
    return method_frame(channel.id, method) + content_frames(
        channel.id, properties, body, channel.connection.limits.frame_max)


def _text(octets):
    return octets.decode("utf-8", "surrogateescape")


class _Waiting:
    """A waiting reply: bytes to send, then an action to call; either may be None."""

    __slots__ = ("octets", "action", "ready")

    def __init__(self, octets, action, ready):
        self.octets = octets
        self.action = action
        self.ready = ready
