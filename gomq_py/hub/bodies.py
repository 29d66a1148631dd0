"""Bodies: one budget for all message bodies that have been received in part, over all connections of a hub.

Beside whoever receives them: it counts what is held, and says who must wait. A body that comes whole never
comes here. Beyond the limit bodies go on that are within their share of as much again (budget); of the others
one at a time, the first, and, up to the limit, those of the same connection, which would not be read if one
of them had to wait; what a connection begins beyond that is to be refused. So at least one always ends, and
the memory held stays below ``2 * limit + max_message_size``; the others' connections are not read meanwhile.
Messages that wait for files before they are stored count too. Never holds a body itself.
"""
import time
from itertools import chain, islice, zip_longest

import gevent

from gomq_py.hub.budget import AT_ONCE, Budget


class BodyBudget(Budget):
    """A body has, besides what every holder has, ``is_held_up``: its connection is not read, for another
    reason than its client's.
    """

    def __init__(self, limit, call_later=gevent.spawn_later, clock=time.monotonic):
        super().__init__(limit, 2 * limit, call_later, clock)
        self._first = None  # the body beyond its share that goes on
        self._turn = 0  # the last one, of every second number
        self._turns = {}  # account that holds anything: the turn it had last, or one before the last it found
        self._letting_on = None
        self._whole = 0  # octets of messages that wait to be stored
        self._ahead = 0  # octets that were read ahead in vain, and are to be read again

    def grow(self, body, octets):
        """Count ``octets`` more for ``body``.

        False: they are counted, but the connection must not be read until ``body.resume_held()`` is called.
        """
        self._hold(body, octets)
        self._turns.setdefault(body.output.account, self._turn - 1)
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
        self.forget(body)
        if not self._let_go(body):
            return
        account = body.output.account
        if body is self._first:
            self._first = None
            self._turn += 2
            self._turns[account] = self._turn
        if account not in self._of_account:
            self._turns.pop(account, None)
        if self._waiting:
            self._let_on()

    def close(self):
        super().close()
        if self._letting_on is not None:
            self._letting_on.kill(block=False)
            self._letting_on = None

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
        """The oldest of those beyond their share whose user in its virtual host has had no turn for longest,
        until it ends or is beyond it no more.
        """
        if self._first is None or self._is_within_share(self._first.output):
            of_connection, of_account = self._shares()
            first = min(
                (body for body, held in self._holders.items()
                 if self._of_output.get(held.output, 0) > of_connection
                 and self._of_account.get(held.account, 0) > of_account),
                key=lambda body: self._turns.get(body.output.account, 0))
            # Where another one of its connection waits, neither would be read.
            self._first = next(self._waiting_of(first.output), first)
        return self._first

    def _waiting_of(self, output):
        return (body for body in self._rows.get(output.account, ()) if body.output is output)

    def _oldest_of(self, output):
        return next(one for one in self._holders if one.output is output)

    def _let_on(self):
        """Whoever may go on is resumed; where many wait in the polls to come, for it takes time."""
        if len(self._waiting) <= AT_ONCE:
            self._let_on_now()
        elif self._letting_on is None:
            self._letting_on = self._call_later(0, self._let_on_now)

    def _let_on_now(self):
        self._letting_on = None
        if self.held <= self.limit:
            rows, resumed = list(self._rows.values()), []
        else:
            rows = [self._within_share(account, row) for account, row in self._rows.items()]
            resumed = self._that_go_on_beyond() if sum(map(len, rows)) < len(self._waiting) else []
        in_turn = chain.from_iterable(zip_longest(*rows))
        resumed += islice((body for body in in_turn if body is not None), AT_ONCE)
        for body in resumed:
            self.forget(body)
            self._measure_anew(body)
        self._resume(resumed)
        if self._waiting and len(resumed) >= AT_ONCE:
            self._let_on()

    def _within_share(self, account, row):
        """Those of one user's that wait."""
        of_connection, of_account = self._shares()
        if self._of_account.get(account, 0) <= of_account:
            return list(row)
        return [body for body in row if self._of_output.get(body.output, 0) <= of_connection]

    def _that_go_on_beyond(self):
        """Those that wait and go on though they are beyond their share."""
        if self._whole:
            return []
        first = self._first_beyond_share()
        waiting = list(self._waiting_of(first.output))
        going_on = [body for body in waiting if self._goes_on(body)]
        if waiting and first not in waiting:
            # Its connection is not read because another one waits: that one is the first.
            self._first = next((body for body in waiting if body not in going_on), first)
            if self._first is not first:
                going_on.append(self._first)
        return going_on

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
