"""Slows down clients that guess passwords. A correct password is not refused but may have to wait.

Failures are counted per user name at an address, and per address. Below the limit a password is checked at
once. Above it every attempt waits until enough earlier failures are forgotten, which happens at a fixed rate.
Attempts with a correct and with a wrong password wait equally long, so that neither time nor answer reveals
anything. Attempts behind a full wait queue are refused unchecked. A user name that has once logged in from an
address waits only for its own failures, not for others from the address.

All protocols share one throttle. An attempt counts as failed while it is being checked, so that parallel
attempts get no more checks than successive ones. Memory is limited: the least recently used counters are
dropped, and so are counters without failures.
"""
import functools
import time
from collections import OrderedDict, deque

from gevent.event import Event

from gomq_py.auth.errors import TooManyAttempts
from gomq_py.hub.admission import network_of

# A person mistypes three times, a guesser thousands of times.
FAILURES_OF_NAME, FORGOTTEN_A_SECOND_OF_NAME = 10, 0.5
FAILURES_OF_ADDRESS, FORGOTTEN_A_SECOND_OF_ADDRESS = 50, 5.0
# Longest wait queue of a counter; its last attempt waits a minute, and further ones are refused.
WAITING = 30
REMEMBERED = 4096
NAME_LENGTH = 256  # longer names are counted by their first characters


class LoginThrottle:
    """Delays or refuses logins after too many failures. ``now_s()`` returns seconds of a monotonic clock."""

    def __init__(self, now_s=time.monotonic):
        self._names = _Counters(FAILURES_OF_NAME, FORGOTTEN_A_SECOND_OF_NAME, now_s)
        self._addresses = _Counters(FAILURES_OF_ADDRESS, FORGOTTEN_A_SECOND_OF_ADDRESS, now_s)
        self._known = OrderedDict()

    def attempt(self, name, address):
        """Return an Attempt, a context manager for the check of a password.

        Entering it waits for the attempt's turn, or raises TooManyAttempts. May switch greenlets. The attempt
        counts as failed unless its block calls ``succeeded()`` or ``void()``.
        """
        network = network_of(address)
        key = network, name[:NAME_LENGTH]
        counters = [self._names.of(key)]
        if key not in self._known:
            counters.append(self._addresses.of(network))
        return Attempt(
            counters, functools.partial(self._know, key), functools.partial(self._names.drop_if_clean, key)
        )

    def is_known(self, name, address):
        """Return whether a login of this name from this address may skip the throttle.

        The name has logged in from the address before, and has no remembered failures there.
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


class Attempt:
    """One login attempt: a context manager around the check of a password."""

    def __init__(self, counters, know, over):
        """``counters``: every _Counter that must admit the attempt.

        ``know()`` is called if the password was correct, ``over()`` when the attempt ends.
        """
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
        except BaseException:  # also when the client disconnects
            self._failed = False
            self._leave()
            raise
        return self

    def __exit__(self, *_):
        self._leave()

    def succeeded(self):
        self._failed = False
        self._know()

    def void(self):
        """Do not count the attempt as failed: it is refused, but the password was correct."""
        self._failed = False

    def _leave(self):
        entered, self._entered = self._entered, []
        for counter in entered:
            counter.leave(self._failed)
        self._over()


class _Counters:
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
        for _ in range(2):
            oldest = next(iter(self._counters), None)
            if oldest is None or not self._counters[oldest].is_clean():
                return
            del self._counters[oldest]

    def drop_if_clean(self, key):
        # Many such counters could otherwise evict the counters of names whose passwords are being guessed.
        counter = self._counters.get(key)
        if counter is not None and counter.is_clean():
            del self._counters[key]


class _Place(Event):
    """An attempt in a wait queue: an Event, set when the attempt must check again whether it may go on.

    ``refused``: the attempt is refused, because the queue is too long.
    """

    refused = False


class _Counter:
    """Counts failures and running checks of one key (name or address). Attempts wait in a queue."""

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
        """Whether a password is being checked or an attempt is waiting."""
        return bool(self._checked or self._waiting)

    def is_clean(self):
        """Return whether there are neither remembered failures nor attempts."""
        self._forget()
        return not self.is_busy and not self._failures

    def enter(self):
        """Wait until a password may be checked. May switch greenlets.

        Raises TooManyAttempts if the wait queue is too long.
        """
        if self._waiting or self._missing() > 0:
            self._wait()
        self._checked += 1

    def leave(self, failed):
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
        """Return whether attempts wait until failures are forgotten, and not only until checks end."""
        return self._failures + 1 > self._limit

    def _shorten(self):
        """Refuse all waiting attempts except the first WAITING."""
        # While checks run, any number of attempts may wait; if the checks fail, the last of these would wait
        # for hours.
        while len(self._waiting) > WAITING:
            last = self._waiting.pop()
            last.refused = True
            last.set()

    def _pause_s(self):
        """Return in how many seconds the first waiting attempt may go on; None if a check must end first."""
        return self._missing() / self._rate if self._missing() <= self._failures else None

    def _missing(self):
        """Return how many failures must be forgotten before another attempt may start; 0 or less: none."""
        self._forget()
        return self._failures + self._checked + 1 - self._limit

    def _forget(self):
        now_s = self._now_s()
        self._failures = max(0.0, self._failures - (now_s - self._since_s) * self._rate)
        self._since_s = now_s

    def _wake(self):
        if self._waiting:
            self._waiting[0].set()
