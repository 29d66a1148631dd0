"""Bodies: one budget for all message bodies that have been received in part, over all connections of a hub.

Beside whoever receives them: it counts what is held, and says who must wait. A body that comes whole never
comes here. Over the limit only the oldest unfinished body may grow, and, up to the limit, those of the same
connection, which would not be read if one of them had to wait; what a connection begins beyond that is to be
refused. So at least one always ends, and the memory held stays below ``2 * limit + max_message_size``; the
others' connections are not read meanwhile. Messages that wait for files before they are stored count too.
Never holds a body itself.
"""
import gevent

from gomq_py.hub.budget import STALLED_S, Budget


class BodyBudget(Budget):
    """A body is any hashable with ``resume_held()`` and ``give_up(why)``; both are called in the hub.
    ``owner``: the connection that is not read while it waits.
    """

    def __init__(self, limit, stalled_s=STALLED_S, call_later=gevent.spawn_later):
        super().__init__(limit, stalled_s, call_later)
        self._sizes = {}
        self._of_owner = {}
        self._whole = 0  # octets of messages that wait to be stored
        self._ahead = 0  # octets that were read ahead in vain, and are to be read again
        self._seen = None

    def grow(self, body, octets):
        """Count ``octets`` more for ``body``.

        False: they are counted, but the connection must not be read until ``body.resume_held()`` is called.
        """
        self._sizes[body] = self._sizes.get(body, 0) + octets
        self._of_owner[body.owner] = self._of_owner.get(body.owner, 0) + octets
        self.held += octets
        if self.held <= self.limit or self._goes_on(body):
            return True
        self._wait(body)
        return False

    def waits_in_vain(self, body):
        """Whether one that may not grow never will: its connection has all of the limit, and an older body,
        which cannot end because the connection is not read.
        """
        return self._of_owner[body.owner] > self.limit and body is not next(
            one for one in self._sizes if one.owner is body.owner)

    def has_room(self, octets):
        """Whether so much of any body may be read ahead now."""
        return self.held + self._ahead + octets <= self.limit

    def count_ahead(self, octets):
        """Count what was read ahead of a body and is no part of it, or, less than 0, what is kept no more."""
        self._ahead += octets

    def release(self, body):
        """``body`` is complete or given up; whoever may go on now is resumed."""
        octets = self._sizes.pop(body, None)
        if octets is None:
            return
        self.held -= octets
        left = self._of_owner.pop(body.owner, 0) - octets
        if left:
            self._of_owner[body.owner] = left
        if body in self._waiting:
            self._waiting.remove(body)
        if self._waiting:
            self._let_on()

    def count_whole(self, octets):
        """Count a message that is complete and waits to be stored, or, less than 0, one that was.

        Over the limit nobody grows meanwhile: or one after the other would become the oldest,
        and wait as well.
        """
        self._whole += octets
        self.held += octets
        if octets < 0 and self._waiting:
            self._let_on()

    def _goes_on(self, body):
        """Whether it may grow over the limit."""
        if self._whole:
            return False
        oldest = self._oldest()
        return body is oldest or (
            body.owner is oldest.owner and self._of_owner.get(body.owner, 0) <= self.limit)

    def _oldest(self):
        return next(iter(self._sizes), None)

    def _progress(self):
        oldest = self._oldest()
        return oldest, self._sizes.get(oldest)

    def _note_progress(self):
        self._seen = self._progress()

    def _give_up_stalled(self):
        oldest, size = self._progress()
        if (oldest, size) == self._seen and oldest not in self._waiting:
            self._give_up(
                oldest,
                f"{size} octets of a message body, and no more for {self._stalled_s} s "
                "while others wait for memory",
            )
            self.release(oldest)

    def _let_on(self):
        if self.held <= self.limit:
            resumed, self._waiting = self._waiting, []
        else:
            resumed = [body for body in self._waiting if self._goes_on(body)]
            self._waiting = [body for body in self._waiting if not self._goes_on(body)]
        self._resume(resumed)
