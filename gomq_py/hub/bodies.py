"""Bodies: one budget for all message bodies that have been received in part, over all connections of a hub.

Beside whoever receives them: it counts what is held, and says who must wait. A body that comes whole never
comes here. Beyond the limit bodies go on that are within their share of as much again (budget); of the others
one at a time, the first, and, up to the limit, those of the same connection, which would not be read if one
of them had to wait; what a connection begins beyond that is to be refused. So at least one always ends, and
the memory held stays below ``2 * limit + max_message_size``; the others' connections are not read meanwhile.
Messages that wait for files before they are stored count too. Never holds a body itself.
"""
import time

import gevent

from gomq_py.hub.budget import Budget


class BodyBudget(Budget):
    """A body has, besides what every holder has, ``is_held_up``: its connection is not read, for another
    reason than its client's.
    """

    def __init__(self, limit, call_later=gevent.spawn_later, clock=time.monotonic):
        super().__init__(limit, 2 * limit, call_later, clock)
        self._first = None  # the body beyond its share that goes on
        self._last_account = None  # whose it was before
        self._whole = 0  # octets of messages that wait to be stored
        self._ahead = 0  # octets that were read ahead in vain, and are to be read again

    def grow(self, body, octets):
        """Count ``octets`` more for ``body``.

        False: they are counted, but the connection must not be read until ``body.resume_held()`` is called.
        """
        self._hold(body, octets)
        if self.held <= self.limit or self._goes_on(body):
            return True
        self._wait(body)
        return False

    def why_in_vain(self, body):
        """Why one that may not grow never will, or "": its connection has all of the limit, or goes on with
        another body beyond twice the limit, which cannot end if the connection is not read.
        """
        output = body.output
        if self._of_output.get(output, 0) > self.limit and body is not self._oldest_of(output):
            return (
                f"unfinished message bodies of more than {self.limit} octets on one connection "
                "(max_unfinished_bodies)")
        first = self._first
        if first is not None and body is not first and output is first.output and not self._whole:
            return (
                "another unfinished message body of this connection has all the room "
                "(max_unfinished_bodies)")
        return ""

    def has_room(self, octets):
        """Whether so much of any body may be read ahead now."""
        return self.held + self._ahead + octets <= self.limit

    def count_ahead(self, octets):
        """Count what was read ahead of a body and is no part of it, or, less than 0, what is kept no more."""
        self._ahead += octets

    def release(self, body):
        """``body`` is complete or given up; whoever may go on now is resumed."""
        self._waiting.pop(body, None)
        if not self._let_go(body):
            return
        if body is self._first:
            self._last_account = body.output.account
            self._first = None
        if self._waiting:
            self._let_on()

    def count_whole(self, octets):
        """Count a message that is complete and waits to be stored, or, less than 0, one that was.

        Over the limit nobody grows beyond its share meanwhile: or one after the other would become the first,
        and wait as well.
        """
        self._whole += octets
        self.held += octets
        if octets < 0 and self._waiting:
            self._let_on()

    def _goes_on(self, body):
        """Whether it may grow over the limit."""
        if self._is_within_share(body.output):
            return True
        if self._whole:
            return False
        first = self._first_beyond_share()
        return body is first or (
            body.output is first.output and self.held <= self.most
            and self._of_output.get(body.output, 0) <= self.limit)

    def _first_beyond_share(self):
        """The oldest of those beyond their share, until it ends or is beyond it no more; users of virtual
        hosts take turns.
        """
        if self._first is None or self._is_within_share(self._first.output):
            beyond = [body for body in self._holders if not self._is_within_share(body.output)]
            first = next(
                (body for body in beyond if body.output.account != self._last_account), beyond[0])
            # Where another one of its connection waits, neither would be read.
            self._first = next((body for body in self._waiting if body.output is first.output), first)
        return self._first

    def _oldest_of(self, output):
        return next(one for one in self._holders if one.output is output)

    def _let_on(self):
        if self.held <= self.limit:
            resumed, self._waiting = list(self._waiting), {}
        else:
            resumed = [body for body in self._waiting if self._goes_on(body)]
            first = self._first
            if first is not None and first not in resumed:
                # If its connection is not read because another one waits, that one is the first.
                for body in self._waiting:
                    if body.output is first.output and not self._whole and body not in resumed:
                        self._first = body
                        resumed.append(body)
                        break
            for body in resumed:
                self.forget(body)
        for body in resumed:
            self._measure_anew(body)
        self._resume(resumed)

    def _progress(self, holder, held):
        return held.octets

    def _may_be_judged(self, holder):
        return holder not in self._waiting and not holder.is_held_up

    def _let_go_of(self, holder):
        self.release(holder)

    def _why(self, held, speed):
        return (
            f"{held.octets} octets of a message body, and only {int(speed * held.octets)} more in a second "
            "while others wait for memory")
