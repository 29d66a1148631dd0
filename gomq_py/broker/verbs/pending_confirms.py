"""Pending confirms: sends answers to publishers, in order, once the messages are on disk.

An UnsyncedQueues records which queues must be flushed for the published messages. At the end of the socket
read the protocol server passes these queues, with an Answer, to PendingConfirms. An Answer without queues
still waits behind earlier ones. Never stores, never switches greenlets.
"""
from collections import deque
from functools import partial

# The flush succeeded, but a queue of the message had failed in an earlier one.
NOT_KEPT = Exception("a queue that it went to has failed")


class UnsyncedQueues:
    """Collects the tuples of queues that must be flushed to disk before an answer. ``last``: the tuple added
    last, or None. Callers compare with it, and do not add the same tuple again: most publishes go to the same
    queues as before.
    """

    __slots__ = ("last", "before")

    def __init__(self):
        self.last = self.before = None

    def add(self, queues):
        if self.last is not None:
            if self.before is None:
                self.before = {}  # as an ordered set
            self.before[self.last] = None
        self.last = queues

    def take(self):
        """Return a tuple of the tuples added since the last take(). If it is empty, no flush is needed."""
        queues, before, self.last, self.before = self.last, self.before, None, None
        if queues is None:
            return ()
        return (queues,) if before is None else (queues, *before)


class Answer:
    """One answer to one or more publishes; each protocol has a subclass. When all earlier answers are sent,
    either kept() or lost() is called. ``flush``: the NextFlush (storage.flush.flushing) that the answer waits
    for, or None.
    """

    __slots__ = ("queues", "flush", "is_safe", "error")

    def __init__(self):
        self.queues = ()
        self.flush = None
        self.is_safe = False
        self.error = None

    def kept(self):
        """Return the bytes to send to the client once the answer's messages are on disk."""
        raise NotImplementedError

    def lost(self):
        """Return the bytes to send to the client when the answer's messages may be lost."""
        raise NotImplementedError

    def must_wait(self, error, callback):
        """Called after the flush, with its ``error`` or None. Returns False if the answer may be sent.
        Returns True if the answer waits for something else. ``callback(error)`` is called after that wait,
        and calls this method again.
        """
        return False

    def is_lost(self):
        """True if the store of a queue that the answer waits for has failed."""
        for queues in self.queues:
            for queue in queues:
                if queue.failed:
                    return True
        return False


class PendingConfirms:
    """Keeps the answers to the publishes of one client until the messages are on disk. The client is an AMQP
    channel or MQTT client. Answers are sent in order by ``write(octets)``. ``when_safe``:
    Durability.when_safe.
    """

    # Each answer costs a callback and perhaps a packet. So publishes that several reads bring while one flush
    # runs should share an answer: see last_for().
    __slots__ = ("_write", "_when_safe", "_waiting")

    def __init__(self, write, when_safe):
        self._write = write
        self._when_safe = when_safe
        self._waiting = None  # a deque (0.6 KiB) while an answer waits

    def is_waiting(self):
        return self._waiting is not None and len(self._waiting) > 0

    def last(self):
        """Return the last waiting answer, which publishes without a flush join. Requires is_waiting()."""
        return self._waiting[len(self._waiting) - 1]

    def last_for(self, unsynced):
        """Return the last waiting answer if more publishes may be added to it, otherwise None."""
        # It must wait for the same tuples of queues, and its flush must not have begun.
        waiting = self._waiting
        if not waiting or not unsynced:
            return None
        last = waiting[len(waiting) - 1]
        if last.flush is None or last.flush.has_begun or last.queues != unsynced:
            return None
        last.flush.join()
        return last

    def done(self, answer, unsynced):
        """Send the answer when the queues in ``unsynced`` are flushed and all earlier answers are sent."""
        if unsynced:
            answer.queues = unsynced
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(answer)
            answer.flush = self._when_safe(partial(self._synced, answer), answer.is_lost)
        elif self._waiting:
            answer.is_safe = True
            self._waiting.append(answer)
        else:
            self._write(answer.kept())

    def mute(self):
        """Send no more answers to the client; kept() and lost() are still called."""
        self._write = _to_nobody

    def close(self):
        """Drop all waiting answers, and send no later answers."""
        self._waiting = None
        self._write = _to_nobody

    def _synced(self, answer, error):
        waiting = self._waiting
        if waiting is None or answer not in waiting or answer.must_wait(error, partial(self._synced, answer)):
            return
        answer.is_safe = True
        answer.error = NOT_KEPT if error is None and answer.is_lost() else error
        octets = []
        while waiting:
            first = waiting[0]
            if not first.is_safe:
                break
            waiting.popleft()
            if first.error is None:
                octets.append(first.kept())
                continue
            if octets:  # sent first, because lost() may end the client
                self._write(b"".join(octets))
            octets = [first.lost()]
        if not waiting and self._waiting is waiting:
            self._waiting = None
        if octets:
            self._write(b"".join(octets))


def _to_nobody(octets):
    """Do nothing: stands for ``write`` after mute() or close()."""
