"""Budget: octets that all connections of a hub may hold together, who may have more, and what becomes of
those who keep others waiting. The one rule for octets; time is shared by turns, places by admission.

Its kinds are BodyBudget, for message bodies that are being received, and hub.large_output, for large messages
that are being sent. Never holds any octets itself.

    up to ``limit``         whoever comes first
    from there to ``most``  whoever is within its share of what is left: a user in a virtual host a half, a
                            connection an eighth before half of that has gone, so that there is always
                            something left for the next one
    beyond its share        waits; and while anybody waits, holders beyond their share have to get on at the
                            least speed: the slowest of those that do not are given up until there is room
"""
import time
from itertools import chain, islice, zip_longest

from gomq_py.observability.log import logger

LOG = logger("hub")

# Of what is left the share of one connection, and of one user in one virtual host over all connections. Half
# of what is beyond the limit is for users alone: one with many connections does not keep out the others.
CONNECTION_PARTS = 8
ACCOUNT_PARTS = 2
# While others wait, whoever holds more than its share must get on by this part of what it holds in a second:
# the more it keeps from others the faster, so that a whole message takes half a minute. A client that drips
# would have to hold ever more, ever faster.
LEAST_PART_S = 1 / 32
# Over how long the speed is measured, at least: TCP's first pauses after lost packets are shorter, and those
# who wait are served in little more.
WINDOW_S = 1
# Between two looks while anybody waits.
LOOK_S = 0.25
# How many go on, or are given up, at one poll: thousands may wait.
AT_ONCE = 64


class Held:
    """What one holder has: ``octets`` of the ``output`` of a connection, whose ``account`` it counts for.

    ``progress`` is what it was at ``since_s``, and ``speed`` the part of its octets by which it got on in a
    second before that; None: it is not known yet.
    """

    __slots__ = ("output", "account", "octets", "progress", "since_s", "speed")

    def __init__(self, output, now_s):
        self.output = output
        self.account = output.account
        self.octets = self.progress = 0
        self.since_s = now_s
        self.speed = None


class Budget:
    """``limit`` and ``most`` in octets, of which ``held`` are in use.

    A holder, which waits as well, is any hashable with ``output`` (the net.output of its connection, which
    says whose it is), ``resume_held()``, called when it is worth asking anew, and ``give_up(why)``. All is
    called in the hub.
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
        self._waiting = {}  # waiter: (octets that it wants, its account), who has waited longest first
        self._wanted = 0  # octets, by all of them
        self._rows = {}  # account: {waiter: None}, the account first of which none has gone on for longest
        self._watch = None
        self._is_closed = False

    def close(self):
        """Stop watching; nobody who waits goes on any more."""
        self._is_closed = True
        for waiter in list(self._waiting):
            self.forget(waiter)
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def forget(self, waiter):
        """It does not wait any more. One that does not wait changes nothing."""
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
        """Whether it had anything."""
        held = self._holders.pop(holder, None)
        if held is None:
            return False
        self.held -= held.octets
        _subtract(self._of_output, held.output, held.octets)
        _subtract(self._of_account, held.account, held.octets)
        return True

    def _is_within_share(self, output, octets=0):
        """Whether so many octets more leave the connection, or its account, within its share of the rest."""
        of_connection, of_account = self._shares(octets)
        return (
            self._of_output.get(output, 0) + octets <= of_connection
            or self._of_account.get(output.account, 0) + octets <= of_account)

    def _shares(self, octets=0):
        """(octets of a connection, of an account) when so many more are held."""
        left = self.most - max(self.held + octets, self.limit)
        return (left - (self.most - self.limit) / 2) / CONNECTION_PARTS, left / ACCOUNT_PARTS

    def _wait(self, waiter, octets=0):
        """``octets`` of a kind that gives them as a whole."""
        if not self._is_closed:
            account = waiter.output.account
            self._wanted += octets - self._waiting.get(waiter, (0, None))[0]
            self._waiting[waiter] = octets, account
            self._rows.setdefault(account, {})[waiter] = None
            self._watch_on(0)  # those who have been slow for long give way at once

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
        """How many there were."""
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
        """What it did so far says nothing: it could not get on."""
        held = self._holders.get(holder)
        if held is not None:
            held.progress, held.since_s, held.speed = self._progress(holder, held), self._clock(), None

    def _resume(self, waiters):
        for waiter in waiters:
            if self._is_closed:
                break
            try:
                waiter.resume_held()
            except Exception:  # the others wait for nobody but us
                LOG.exception("a connection that waited for memory cannot go on")

    def _give_up(self, holder, why):
        """The others have waited long enough."""
        try:
            holder.give_up(why)
        except Exception:
            LOG.exception("a connection that others wait for cannot be given up")

    # of each kind

    def _lacks_room(self):
        """Whether somebody waits for what others hold."""
        return bool(self._waiting)

    def _call_next(self):
        """Called at each look while anybody waits. Whether one that was called did not ask, and others wait.
        """

    def _progress(self, holder, held):
        """How far it has got, in octets."""
        raise NotImplementedError

    def _may_be_judged(self, holder):
        """Whether it is its client that keeps it from getting on."""
        raise NotImplementedError

    def _let_go_of(self, holder):
        """It has been given up: whoever waits for its octets goes on."""
        raise NotImplementedError

    def _why(self, held, speed):
        """What its client, or the log, is told."""
        raise NotImplementedError


def _subtract(sums, key, octets):
    left = sums.pop(key, 0) - octets
    if left > 0:
        sums[key] = left


class BodyBudget(Budget):
    """One budget for all message bodies that have been received in part, over all connections of a hub.

    Beside whoever receives them: it counts what is held, and says who must wait. A body that comes whole
    never comes here. Beyond the limit bodies go on that are within their share of as much again; of the
    others one at a time, the first, and, up to the limit, those of the same connection, which would not be
    read if one of them had to wait; what a connection begins beyond that is to be refused. So at least one
    always ends, and the memory held stays below ``2 * limit + max_message_size``; the others' connections are
    not read meanwhile. Messages that wait for files before they are stored count too.

    A body has, besides what every holder has, ``is_held_up``: its connection is not read, for another reason
    than its client's.
    """

    def __init__(self, limit, timers, clock=time.monotonic):
        super().__init__(limit, 2 * limit, timers, clock)
        self._first = None  # the body beyond its share that goes on
        self._turn = 0  # the last one, of every second number
        self._turns = {}  # account that holds anything: the turn it had last, or one before the last it found
        self._letting_on = None
        self._whole = 0  # octets of messages that wait to be stored

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
            self._letting_on.stop()
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
