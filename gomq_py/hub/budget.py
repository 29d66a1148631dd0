"""Budget: octets that all connections of a hub may hold together, who may have more, and what becomes of
those who keep others waiting. The one rule for octets; time is shared by slow_walk, places by admission.

Below the kinds of it (bodies, large_output). Never holds any octets itself.

    up to ``limit``         whoever comes first
    from there to ``most``  whoever is within its share of what is left: a user in a virtual host a half, a
                            connection an eighth before half of that has gone, so that there is always
                            something left for the next one
    beyond its share        waits; and while anybody waits, holders beyond their share have to get on at the
                            least speed: the slowest of those that do not are given up until there is room
"""
import time

import gevent

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

    def __init__(self, limit, most, call_later=gevent.spawn_later, clock=time.monotonic):
        self.limit = limit
        self.most = most
        self.held = 0
        self._call_later = call_later
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
            self._watch.kill(block=False)
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
            self._watch = self._call_later(seconds, self._look)

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
