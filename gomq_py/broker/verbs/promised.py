"""Promised: answers to publishers that may not leave before what they answer is on disk, in their order.

Between a door's lanes, which make the answers, and the flushes. A lane notes in Unsynced, per message, which
queues must be on disk; at the end of the read they go to Promised. An answer that waits for no disk still
waits behind the earlier ones. Once per read, never per message; never stores and never switches.
"""
from collections import deque
from functools import partial

# A flush has succeeded, but one of the queues had failed in an earlier one, while the message went on to the
# others.
NOT_KEPT = Exception("a queue that it went to has failed")


class Unsynced:
    """``last``: the queues noted last, or None: a lane compares it in place, because most publishes go where
    the one before went.
    """

    __slots__ = ("last", "before")

    def __init__(self):
        self.last = self.before = None

    def add(self, queues):
        """A publish to these queues, a tuple, is answered when it is on disk."""
        if self.last is not None:
            if self.before is None:
                self.before = {}  # as an ordered set
            self.before[self.last] = None
        self.last = queues

    def take(self):
        """The tuples of queues added since the last call; empty: nothing has to be waited for."""
        queues, before, self.last, self.before = self.last, self.before, None, None
        if queues is None:
            return ()
        return (queues,) if before is None else (queues, *before)


class Answer:
    """An answer to publishes that were made together; each door has its own.

    One of ``kept`` and ``lost`` is called, once, when all earlier answers have been given. ``flush``: the
    storage.flush.gathering.Coming that it waits for, if that had not begun when it was asked for.
    """

    __slots__ = ("queues", "flush", "is_safe", "error")

    def __init__(self):
        self.queues = ()
        self.flush = None
        self.is_safe = False
        self.error = None

    def kept(self):
        """The octets for the client: what it published is as safe as it has to be."""
        raise NotImplementedError

    def lost(self):
        """The octets for the client: nobody knows whether what it published survives."""
        raise NotImplementedError

    def must_wait(self, error, callback):
        """Whether it can be neither kept nor lost yet, though the flush is over: ``callback(error)`` is
        called when that may have changed. ``error``: that of the flush, or None.
        """
        return False

    def is_lost(self):
        """Whether a store of one of its queues has failed."""
        for queues in self.queues:
            for queue in queues:
                if queue.failed:
                    return True
        return False


class Promised:
    """The answers of one channel or client. ``write(octets)`` sends them; ``when_safe(callback, concerns)``
    is that of storage.flush.durability.

    Each answer is a callback and, on its own, a packet: what is published while an earlier flush runs, read
    by read, had better be added to the last answer (``last_for``).
    """

    __slots__ = ("_write", "_when_safe", "_waiting")

    def __init__(self, write, when_safe):
        self._write = write
        self._when_safe = when_safe
        self._waiting = None  # a deque, which takes 0.6 KiB, while some answer waits

    def is_waiting(self):
        """Whether some answer waits for the disk."""
        return self._waiting is not None and len(self._waiting) > 0

    def last(self):
        """The last answer that waits; a door may still add to it what has to wait for nothing else."""
        return self._waiting[len(self._waiting) - 1]

    def last_for(self, unsynced):
        """The last answer, to which publishes to the same tuples of queues may be added, because the flush
        that it waits for has not begun; None: there is no such answer.
        """
        waiting = self._waiting
        if not waiting or not unsynced:
            return None
        last = waiting[len(waiting) - 1]
        if last.flush is None or last.flush.has_begun or last.queues != unsynced:
            return None
        last.flush.join()
        return last

    def done(self, answer, unsynced):
        """Give the answer when the tuples of queues in ``unsynced`` are on disk; none: right behind the
        earlier answers.
        """
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
        """Nobody waits for the answers any more; whoever gives them still hears what became of them."""
        self._write = _to_nobody

    def close(self):
        """Nobody waits for the answers any more: forget them, and those that come."""
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
            if octets:  # what is lost may end the client, who is told before of what is not
                self._write(b"".join(octets))
            octets = [first.lost()]
        if not waiting and self._waiting is waiting:
            self._waiting = None
        if octets:
            self._write(b"".join(octets))


def _to_nobody(octets):
    """In place of ``write``."""
