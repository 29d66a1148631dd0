"""Endings: cleans up after ended connections, and remembers why the last connections ended.

The cleanup releases, for example, consumers and unacknowledged messages, in slices, because the end of a
channel costs some 10 us. A connection may have thousands of channels, and hundreds of connections end at once
where a network fails. Never switches greenlets.
"""
import marshal
import time
from collections import deque
from itertools import chain, count, islice

from gomq_py.hub.scheduler import Job, SliceClock

# Channels that end without waiting for others to be served: some 0.3 ms.
FEW = 32
# Ended connections, and ended channels, that operators can ask for.
KEPT = 500
# Reasons and names come from clients.
TEXT_MAX = 500
# Python's allocator serves objects of up to 512 octets from arenas of 1 MiB, each of which stays as long as
# one object in it.
BEYOND_ARENAS = 513


class Endings(Job):
    """Cleans up after ended connections, oldest end first, in slices of bounded time."""

    name = "ends of connections"

    def __init__(self, scheduler, slice_clock=SliceClock):
        super().__init__()
        self._scheduler = scheduler
        self._slice_clock = slice_clock
        self._waiting = deque()  # (iterator of ends; then)
        self._is_closed = False

    def give_back(self, ends, then):
        """Call each function of ``ends``, an iterable read item by item, then ``then()``, in slices."""
        if not self._is_closed:
            self._waiting.append((iter(ends), then))
            self._scheduler.start(self)

    def give_back_few(self, ends, then):
        """Call each function of ``ends``, then ``then()``. This is done at once if ``ends`` are few and no
        other connection waits, otherwise later, in slices.
        """
        ends = iter(ends)
        first = list(islice(ends, FEW + 1))
        self.give_back(chain(first, ends), then)
        if len(self._waiting) == 1 and len(first) <= FEW:
            self.finish()

    def are_waiting(self):
        """Whether the cleanup of an ended connection is not finished."""
        return bool(self._waiting)

    def close(self):
        """Stop all cleanup. Ended connections stay as they are."""
        self._is_closed = True
        self._waiting.clear()

    def finish(self):
        """Finish all cleanup now, without slices."""
        while self._waiting:
            self._next()

    def step(self):
        clock = self._slice_clock()
        while self._waiting:
            self._next()
            if clock.is_over():
                break
        return bool(self._waiting)

    def _next(self):
        ends, then = self._waiting[0]
        end = next(ends, None)
        if end is not None:
            end()
        else:
            self._waiting.popleft()
            then()

    def failed(self, error):
        """Return True if functions still wait. The job then continues after the function that raised."""
        return bool(self._waiting)


class EndingsLately:
    """Remembers the last connections and channels that ended, with the reasons."""

    # As octets outside of Python's arenas: an object made now would lie where a connection has just been
    # freed, and would keep that arena from being given back to the system.
    def __init__(self, unix_s=time.time):
        self._connections, self._channels = deque(maxlen=KEPT), deque(maxlen=KEPT)
        self._unix_s = unix_s
        self._numbers = count(1)

    @property
    def connections(self):
        """The last ended connections as dicts, oldest first: ``name``, ``reason``, ``closed_at`` in Unix ms
        and others. ``user`` is a User's identity.
        """
        return [marshal.loads(octets) for octets in self._connections]

    @property
    def channels(self):
        """The last channels that the broker closed because of an error, as dicts, oldest first."""
        return [marshal.loads(octets) for octets in self._channels]

    def connection(self, one, reason, given_name=None):
        """Record that the logged-in connection ``one`` has ended. ``given_name``: the name that the client
        gave to the connection.
        """
        self._connections.append(self._octets(
            "connection", one, reason, protocol=one.protocol,
            user_provided_name=given_name[:TEXT_MAX] if isinstance(given_name, str) else None,
            connected_at=int(one.connected_at * 1000)))

    def channel(self, connection, number, reason):
        """Record that the broker closes a channel because of an error, the ``reason``."""
        self._channels.append(self._octets("channel", connection, reason, channel=number))

    def _octets(self, what, connection, reason, **more):
        return marshal.dumps({
            "number": next(self._numbers), "what": what, "name": connection.name,
            "vhost": connection.vhost.name, "user": connection.user.identity,
            "closed_at": int(self._unix_s() * 1000), "reason": str(reason)[:TEXT_MAX], **more,
        }).ljust(BEYOND_ARENAS)  # marshal ignores octets behind a value
