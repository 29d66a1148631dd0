"""Budget: limits the bytes that all connections of an event loop hold together.

BodyBudget is for message bodies being received, LargeOutput for large messages being sent. A budget counts
bytes and stores none. A holder is a body or consumer that holds bytes; an account is a user in a virtual
host.

The first ``limit`` bytes go to all holders, first come, first served. The bytes from ``limit`` to ``most``,
the reserve, go only to holders within their share. An account's share is half of the free part of the
reserve. A connection's share is an eighth of the free part of the first half of the reserve. A holder is
within its share if its account or its connection is. A holder beyond its share waits. While any holder waits,
the holders beyond their share must make progress at a minimum speed. Connections of slower holders are
closed, the slowest first, until enough bytes are free.
"""
import time
from itertools import chain, islice, zip_longest

from gomq_py.observability.log import logger

LOG = logger("hub")

# Parts of what is left: the share of a connection, and of a user in a virtual host over all connections. Half
# of what is beyond the limit is for users alone, so that a user with many connections keeps out no other.
CONNECTION_PARTS = 8
ACCOUNT_PARTS = 2
# While others wait, a holder beyond its share must get on by this part of what it holds in a second, so that
# a whole message takes half a minute at most. A client that drips must drip ever faster.
LEAST_PART_S = 1 / 32
# Least time over which speed is measured: TCP's first pauses after lost packets are shorter.
WINDOW_S = 1
# Between two looks while anybody waits.
LOOK_S = 0.25
# Waiters that go on, or holders that are given up, at one poll: thousands may wait.
AT_ONCE = 64


class Held:
    """The bytes (``octets``) of one holder: a body or consumer. ``output``: that of the holder's connection.

    ``progress``: bytes received or sent for the holder up to the time ``since_s``. ``speed``: progress per
    second before ``since_s``, divided by ``octets``; None: not measured yet.
    """

    __slots__ = ("output", "account", "octets", "progress", "since_s", "speed")

    def __init__(self, output, now_s):
        self.output = output
        self.account = output.account
        self.octets = self.progress = 0
        self.since_s = now_s
        self.speed = None


class Budget:
    """Counts the bytes that holders have: in all (``held``), by connection and by account (user in a vhost).

    A holder or waiter is any hashable object. Its ``output`` is its connection's Output (net.output), and has
    the account. ``resume_held()`` is called when a waiter should try again. ``give_up(why)`` closes the
    connection. Neither method may switch greenlets.
    """

    def __init__(self, limit, most, timers, clock=time.monotonic):
        self.limit = limit
        self.most = most
        self.held = 0
        self._timers = timers
        self._clock = clock
        self._holders = {}  # holder: Held, the oldest first
        self._of_output = {}
        self._of_account = {}
        self._waiting = {}  # waiter: (wanted octets, account), oldest first
        self._wanted = 0  # octets, by all waiters
        self._rows = {}  # account: {waiter: None}, the account served longest ago first
        self._watch = None
        self._is_closed = False

    def close(self):
        """Stop the timer and forget all waiters, without resuming them."""
        self._is_closed = True
        for waiter in list(self._waiting):
            self.forget(waiter)
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def forget(self, waiter):
        """Remove a waiter. Does nothing if ``waiter`` does not wait."""
        octets, account = self._waiting.pop(waiter, (0, None))
        self._wanted -= octets
        row = self._rows.get(account, {})
        if waiter in row:
            del self._rows[account], row[waiter]
            if row:
                self._rows[account] = row

    def _hold(self, holder, octets):
        held = self._holders.get(holder)
        if held is None:
            held = self._holders[holder] = Held(holder.output, self._clock())
            held.progress = self._progress(holder, held)
        held.octets += octets
        self.held += octets
        self._of_output[held.output] = self._of_output.get(held.output, 0) + octets
        self._of_account[held.account] = self._of_account.get(held.account, 0) + octets

    def _let_go(self, holder):
        """Subtract a holder's bytes from all counts. Returns False if the holder had none."""
        held = self._holders.pop(holder, None)
        if held is None:
            return False
        self.held -= held.octets
        _subtract(self._of_output, held.output, held.octets)
        _subtract(self._of_account, held.account, held.octets)
        return True

    def _is_within_share(self, output, octets=0):
        """Whether the connection or its account would be within its share with ``octets`` more bytes."""
        of_connection, of_account = self._shares(octets)
        return (
            self._of_output.get(output, 0) + octets <= of_connection
            or self._of_account.get(output.account, 0) + octets <= of_account)

    def _shares(self, octets=0):
        """Return (a connection's share, an account's share) in bytes, if ``octets`` more were held."""
        left = self.most - max(self.held + octets, self.limit)
        return (left - (self.most - self.limit) / 2) / CONNECTION_PARTS, left / ACCOUNT_PARTS

    def _wait(self, waiter, octets=0):
        """Add a waiter. ``octets``: bytes that it needs; 0 if its bytes count as held already."""
        if not self._is_closed:
            account = waiter.output.account
            self._wanted += octets - self._waiting.get(waiter, (0, None))[0]
            self._waiting[waiter] = octets, account
            self._rows.setdefault(account, {})[waiter] = None
            self._watch_on(0)  # holders that have been slow for long give way at once

    def _watch_on(self, seconds):
        if self._waiting and self._watch is None:
            self._watch = self._timers.start(seconds * 1000, self._look)

    def _look(self):
        self._watch = None
        if self._waiting:
            count = self._give_up_slow()
            was_in_vain = self._call_next()
            self._watch_on(0 if was_in_vain or count == AT_ONCE else LOOK_S)

    def _give_up_slow(self):
        """Close connections of slow holders beyond their share until enough is free. Returns their number."""
        count = 0
        now_s = self._clock()
        slow = []
        for holder, held in self._holders.items():
            self._measure(holder, held, now_s)
            if held.speed is not None and held.speed < LEAST_PART_S:
                slow.append((held.speed, len(slow), holder))
        for speed, _, holder in sorted(slow):
            if count == AT_ONCE or not self._lacks_room():
                break
            held = self._holders.get(holder)
            if held is None or self._is_within_share(held.output) or not self._may_be_judged(holder):
                continue
            self._give_up(holder, self._why(held, speed))
            self._let_go_of(holder)
            count += 1
        return count

    def _measure(self, holder, held, now_s):
        passed_s = now_s - held.since_s
        if passed_s >= WINDOW_S:
            progress = self._progress(holder, held)
            held.speed = (progress - held.progress) / passed_s / max(held.octets, 1)
            held.progress, held.since_s = progress, now_s

    def _measure_anew(self, holder):
        """Measure a holder's speed from now on, because it could make no progress while waiting."""
        held = self._holders.get(holder)
        if held is not None:
            held.progress, held.since_s, held.speed = self._progress(holder, held), self._clock(), None

    def _resume(self, waiters):
        for waiter in waiters:
            if self._is_closed:
                break
            try:
                waiter.resume_held()
            except Exception:  # only this loop resumes the others
                LOG.exception("a connection that waited for memory cannot go on")

    def _give_up(self, holder, why):
        try:
            holder.give_up(why)
        except Exception:
            LOG.exception("a connection that others wait for cannot be given up")

    # for subclasses

    def _lacks_room(self):
        """Whether waiters need bytes that holders have now."""
        return bool(self._waiting)

    def _call_next(self):
        """Resume waiters. True if the timer must call again at once. Does nothing unless overridden."""

    def _progress(self, holder, held):
        """Return how many bytes were received or sent for the holder until now, to compute its speed."""
        raise NotImplementedError

    def _may_be_judged(self, holder):
        """Whether a slow holder can only be its client's fault, so that the client may be disconnected."""
        raise NotImplementedError

    def _let_go_of(self, holder):
        """Free the bytes of a holder whose connection give_up() has closed, and resume waiters."""
        raise NotImplementedError

    def _why(self, held, speed):
        """Return a text for the client or the log: why a slow holder's connection is closed."""
        raise NotImplementedError


def _subtract(sums, key, octets):
    left = sums.pop(key, 0) - octets
    if left > 0:
        sums[key] = left


class BodyBudget(Budget):
    """Limits the bytes of message bodies that are incomplete or not stored yet, over all connections.

    Between ``limit`` and twice ``limit``, bodies within their share may grow, and one body beyond its share,
    the *first* body. Its connection is read on, so other bodies of that connection grow, too; they
    are refused when the connection holds ``limit``. Other connections with bodies beyond their share are not
    read. So at least one body always ends, and memory stays below ``2 * limit + max_message_size``. A body
    also has ``is_held_up``: True while the broker has paused reading of its connection for another reason.
    """

    def __init__(self, limit, timers, clock=time.monotonic):
        super().__init__(limit, 2 * limit, timers, clock)
        self._first = None  # the body beyond its share that goes on
        self._turn = 0  # number of the last turn; even
        self._turns = {}  # account with bodies: its last turn, or the turn before the one that it found
        self._letting_on = None
        self._whole = 0  # octets of messages that wait to be stored

    def grow(self, body, octets):
        """Count ``octets`` more bytes for ``body``. Returns True if more of the body may be received. If
        False, the body's connection must not be read until ``body.resume_held()`` is called.
        """
        self._hold(body, octets)
        self._turns.setdefault(body.output.account, self._turn - 1)
        if self.held <= self.limit or self._goes_on(body):
            return True
        self._wait(body)
        return False

    def why_in_vain(self, body):
        """Return why a waiting body would wait for ever, as text; "" if it may grow later."""
        # Its connection holds the whole limit, or another body of its connection needs the room beyond the
        # limit.
        output = body.output
        if self._of_output.get(output, 0) > self.limit and body is not self._oldest_of(output):
            return (
                f"unfinished message bodies of more than {self.limit} bytes on one connection "
                "(max_unfinished_bodies)")
        first = self._first
        if first is not None and body is not first and output is first.output and not self._whole:
            return (
                "another unfinished message body of this connection has all the room "
                "(max_unfinished_bodies)")
        return ""

    def release(self, body):
        """Free the bytes of a body that is complete or will not end, and resume waiting bodies."""
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
            self._letting_on.stop()
            self._letting_on = None

    def count_whole(self, octets):
        """Count the bytes of a complete message not stored yet; negative ``octets`` when it is stored."""
        # While such messages wait, no body beyond its share may grow above the limit.
        self._whole += octets
        self.held += octets
        if octets < 0 and self._waiting:
            self._let_on()

    def _goes_on(self, body):
        """Whether a body may grow although the budget's limit is reached."""
        if self._is_within_share(body.output):
            return True
        if self._whole:
            return False
        first = self._first_beyond_share()
        return body is first or (
            body.output is first.output and self.held <= self.most
            and self._of_output.get(body.output, 0) <= self.limit)

    def _first_beyond_share(self):
        """Return the one body that may grow beyond its share, until it ends or is within its share."""
        # The oldest, of the account that was served longest ago.
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
        """Resume the waiting bodies that may grow. Many are resumed over several polls of the event loop."""
        if len(self._waiting) <= AT_ONCE:
            self._let_on_now()
        elif self._letting_on is None:
            self._letting_on = self._timers.start(0, self._let_on_now)

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
        """Return the bodies in ``row`` that are within their share. ``row``: an account's waiting bodies."""
        of_connection, of_account = self._shares()
        if self._of_account.get(account, 0) <= of_account:
            return list(row)
        return [body for body in row if self._of_output.get(body.output, 0) <= of_connection]

    def _that_go_on_beyond(self):
        """Return the waiting bodies that may grow now although they are beyond their share."""
        if self._whole:
            return []
        first = self._first_beyond_share()
        waiting = list(self._waiting_of(first.output))
        going_on = [body for body in waiting if self._goes_on(body)]
        if waiting and first not in waiting:
            # Its connection is not read because another body of it waits: that one becomes the first.
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
            f"{held.octets} bytes of a message body, and only {int(speed * held.octets)} more in a second "
            "while others wait for memory")


class LargeOutput(Budget):
    """Limits the bytes of large messages that clients have not read yet, over all connections.

    Delivery calls admit() before it copies a message larger than the shared output buffer, or sends one from
    its file. A copy stays until the socket has taken it. The last quarter of the limit is only for consumers
    within their share of it. Other consumers wait. While consumers wait, clients that read too slowly are
    disconnected. If no other copy exists, a copy of any size is admitted. If no waiter has been admitted for
    ``2 * WINDOW_S``, one copy is admitted beyond the limit and counts in no share. A consumer's progress is
    the bytes that its ``output`` has sent.
    """

    def __init__(self, limit, timers, clock=time.monotonic):
        super().__init__(limit * 3 // 4, limit, timers, clock)
        self._called = None  # the waiter that was resumed last and has not asked yet
        self._past = None  # the consumer that may have, or has, a copy beyond the limit
        self._past_octets = 0
        self._got_on_s = 0.0  # when a waiter last had its turn, or none waited

    def admit(self, consumer, octets):
        """Whether the consumer may get ``octets`` bytes now. If not, its resume_held() is called later."""
        if consumer is self._called:
            self._called = None
        if self._is_within_share(consumer.output, octets) or (
            self._fits(octets) and (not self._waiting or consumer is self._next())
        ) or self._is_let_past(consumer):
            self.forget(consumer)
            return True
        if not self._waiting:
            self._got_on_s = self._clock()
        self._wait(consumer, octets)
        return False

    def written(self, consumer, octets):
        """Count ``octets`` bytes of a copy that the socket did not take."""
        if consumer not in self._holders:
            consumer.output.call_when_drained(lambda: self._let_go_of(consumer))
        self._hold(consumer, octets)
        if consumer is self._past:
            self._past_octets += octets

    def _let_go_of(self, holder):
        if holder is self._past:
            self._past, self._past_octets = None, 0
        if self._let_go(holder) and self._waiting:
            self._call_next()

    def _is_let_past(self, consumer):
        """Return True if the consumer may get one copy beyond the limit, and has no such copy yet."""
        return consumer is self._past and not self._past_octets

    def _shares(self, octets=0):
        return super()._shares(octets - self._past_octets)

    def _look(self):
        if self._past is not None and (not self._past_octets or self._is_within_share(self._past.output)):
            self._past, self._past_octets = None, 0  # it did not ask, or its client took the copy at once
        now_s = self._clock()
        if self._past is None and self._waiting and now_s - self._got_on_s >= 2 * WINDOW_S:
            self._past, self._got_on_s = self._next(), now_s
            self._resume([self._past])
        super()._look()

    def _lacks_room(self):
        return self.held + self._wanted > self.limit

    def _call_next(self):
        """Resume waiters in order while enough is free. Returns whether the timer must call again at once."""
        # It must if a resumed waiter no longer asked for octets.
        was_in_vain = False
        while self._waiting:
            consumer = self._next()
            if not self._fits(self._waiting[consumer][0]):
                break
            if consumer is self._called:
                self.forget(consumer)
                was_in_vain = True
                continue
            self._called, self._got_on_s = consumer, self._clock()
            self._resume([consumer])
            if self._waiting and self._next() is consumer:
                break  # the consumer asks in its turn
        return was_in_vain

    def _fits(self, octets):
        return not self._holders or self.held + octets <= self.limit

    def _next(self):
        """Return the oldest waiter of the account that holds the fewest bytes."""
        account = min(self._rows, key=lambda one: self._of_account.get(one, 0))
        return next(iter(self._rows[account]))

    def _progress(self, holder, held):
        return holder.output.sent_octets

    def _may_be_judged(self, holder):
        return True

    def _why(self, held, speed):
        return (
            f"the client reads only {int(speed * held.octets)} bytes in a second of a message of "
            f"{held.octets} bytes while others wait for memory")
