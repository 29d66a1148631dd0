"""Attempts to log in: whoever guesses passwords is slowed down, and a right password comes through, if late.

Failures are counted for each user name at an address, and for each address. Below the limit a password is
checked at once. Beyond it every further one waits until earlier failures are forgotten, right or wrong alike,
so that neither the time nor the answer says anything and there are no more tries than that. Where many wait
already, more are refused unchecked. A name that was logged in with from an address waits for its own failures
only, not for those of everybody else behind that address.

All doors count here; an attempt that is being checked counts as failed until it has succeeded, so that many
at once are no more than as many one after the other. Memory is bounded: what was not used for longest is
forgotten, and whose failures have been forgotten goes with the next name that comes.
"""
import functools
import time
from collections import OrderedDict, deque

from gevent.event import Event

from gomq_py.auth.errors import TooManyAttempts
from gomq_py.hub.admission import network_of

# A person mistypes thrice, a guesser thousands of times.
FAILURES_OF_NAME, FORGOTTEN_A_SECOND_OF_NAME = 10, 0.5
FAILURES_OF_ADDRESS, FORGOTTEN_A_SECOND_OF_ADDRESS = 50, 5.0
# Who comes behind so many that wait for failures to be forgotten is refused: the last of them waits a minute.
WAITING = 30
REMEMBERED = 4096
NAME_LENGTH = 256  # of longer names this much is counted by


class Attempts:
    """``now_s`` is any clock that only moves forward."""

    def __init__(self, now_s=time.monotonic):
        self._names = _Counters(FAILURES_OF_NAME, FORGOTTEN_A_SECOND_OF_NAME, now_s)
        self._addresses = _Counters(FAILURES_OF_ADDRESS, FORGOTTEN_A_SECOND_OF_ADDRESS, now_s)
        self._known = OrderedDict()

    def turn(self, name, address):
        """``with attempts.turn(name, address) as turn:`` is entered when a password may be checked, and
        counts as failed unless ``turn.succeeded()`` or ``turn.void()`` was called. Raises TooManyAttempts.
        May switch.
        """
        network = network_of(address)
        key = network, name[:NAME_LENGTH]
        counters = [self._names.of(key)]
        if key not in self._known:
            counters.append(self._addresses.of(network))
        return Turn(
            counters, functools.partial(self._know, key), functools.partial(self._names.drop_if_clean, key)
        )

    def is_known(self, name, address):
        """Whether the name was logged in with from this address, and no failure since is remembered: then a
        right password waits for nobody and leaves nothing behind, and needs no turn.
        """
        key = network_of(address), name[:NAME_LENGTH]
        if key not in self._known or key in self._names:
            return False
        self._known.move_to_end(key)
        return True

    def _know(self, key):
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


class Turn:
    """One attempt."""

    def __init__(self, counters, know, over):
        """``know()`` is called for a right password, ``over()`` at the end."""
        self._counters = counters
        self._know = know
        self._over = over
        self._entered = []
        self._failed = True

    def __enter__(self):
        try:
            for counter in self._counters:
                counter.enter()
                self._entered.append(counter)
        except BaseException:  # the client has gone, too
            self._failed = False
            self._leave()
            raise
        return self

    def __exit__(self, *_):
        self._leave()

    def succeeded(self):
        """The password was right."""
        self._failed = False
        self._know()

    def void(self):
        """Nothing was tried that could be guessed."""
        self._failed = False

    def _leave(self):
        entered, self._entered = self._entered, []
        for counter in entered:
            counter.leave(self._failed)
        self._over()


class _Counters:
    """The _Counter of each key."""

    def __init__(self, limit, forgotten_a_second, now_s):
        self._make = functools.partial(_Counter, limit, forgotten_a_second, now_s)
        self._counters = OrderedDict()

    def __contains__(self, key):
        return key in self._counters

    def of(self, key):
        counter = self._counters.get(key)
        if counter is None:
            self._drop_oldest_clean()
            counter = self._counters[key] = self._make()
            if len(self._counters) > REMEMBERED:
                oldest, left = self._counters.popitem(last=False)
                if left.is_busy:
                    self._counters[oldest] = left
        else:
            self._counters.move_to_end(key)
        return counter

    def _drop_oldest_clean(self):
        """Two, so that those whose failures are forgotten do not stay until there are REMEMBERED of them."""
        for _ in range(2):
            oldest = next(iter(self._counters), None)
            if oldest is None or not self._counters[oldest].is_clean():
                return
            del self._counters[oldest]

    def drop_if_clean(self, key):
        """Names that were refused with their address, or logged in,
        must not push out those that are guessed at.
        """
        counter = self._counters.get(key)
        if counter is not None and counter.is_clean():
            del self._counters[key]


class _Place(Event):
    """A place in the row of those who wait; it is set when there is something to look at.

    ``refused``: the row has become too long for it.
    """

    refused = False


class _Counter:
    """Failures under one key, who is being checked, and who waits, in the order of their coming."""

    __slots__ = ("_limit", "_rate", "_now_s", "_failures", "_since_s", "_checked", "_waiting")

    def __init__(self, limit, forgotten_a_second, now_s):
        self._limit = limit
        self._rate = forgotten_a_second
        self._now_s = now_s
        self._failures = 0.0
        self._since_s = now_s()
        self._checked = 0
        self._waiting = deque()

    @property
    def is_busy(self):
        """Whether somebody is being checked or waits."""
        return bool(self._checked or self._waiting)

    def is_clean(self):
        """Whether it has nothing to remember."""
        self._forget()
        return not self.is_busy and not self._failures

    def enter(self):
        """Come back when a password may be checked. Raises TooManyAttempts. May switch."""
        if self._waiting or self._missing() > 0:
            self._wait()
        self._checked += 1

    def leave(self, failed):
        """The check is over."""
        self._checked -= 1
        if failed:
            self._forget()
            self._failures += 1
            if self._waits_for_failures():
                self._shorten()
        self._wake()

    def _wait(self):
        self._forget()
        if len(self._waiting) >= WAITING and self._waits_for_failures():
            raise TooManyAttempts(int(WAITING / self._rate))
        mine = _Place()
        self._waiting.append(mine)
        try:
            while self._waiting[0] is not mine or self._missing() > 0:
                mine.clear()
                mine.wait(self._pause_s() if self._waiting[0] is mine else None)
                if mine.refused:
                    raise TooManyAttempts(int(WAITING / self._rate))
        finally:
            if not mine.refused:
                self._waiting.remove(mine)
                self._wake()

    def _waits_for_failures(self):
        """Whether the row waits for failures to be forgotten, and not only for checks to end."""
        return self._failures + 1 > self._limit

    def _shorten(self):
        """Refuse those behind WAITING others: they came while checks were under way that have failed since,
        and would wait for hours.
        """
        while len(self._waiting) > WAITING:
            last = self._waiting.pop()
            last.refused = True
            last.set()

    def _pause_s(self):
        """When the first in the row should look again; those that are being checked wake it when they end."""
        return self._missing() / self._rate if self._missing() <= self._failures else None

    def _missing(self):
        """How many failures too many there would be if the next attempt failed as well."""
        self._forget()
        return self._failures + self._checked + 1 - self._limit

    def _forget(self):
        now_s = self._now_s()
        self._failures = max(0.0, self._failures - (now_s - self._since_s) * self._rate)
        self._since_s = now_s

    def _wake(self):
        if self._waiting:
            self._waiting[0].set()
