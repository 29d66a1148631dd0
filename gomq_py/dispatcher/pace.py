"""Pace: limits how often one worker begins tasks. All code here runs in the link's thread."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

# Seconds in the units of a rate such as "10/s".
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Pace:
    """Begins tasks in order, ``interval_s`` seconds apart; 0: at once.

    A late timer delays only its own task, so that the mean rate holds. ``link.call_later`` schedules the next
    begin. If a runner cannot begin a task, ``forget(invocation)`` is called and, with an interval,
    ``refuse(delivery, error)``.
    """

    def __init__(
        self, interval_s: float, link: Any, forget: Callable[[Any], object],
        refuse: Callable[[Any, BaseException], object], clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._link = link
        self._forget = forget
        self._refuse = refuse
        self._clock = clock
        self._next_at = clock()
        self._waiting: deque[Any] = deque()  # (runner, invocation)
        self._is_planned = False

    def begin(self, runner: Any, invocation: Any) -> None:
        """Let the runner begin the invocation when due. Raises the runner's error if ``interval_s`` is 0."""
        if not self._interval_s:
            self._start(runner, invocation)
            return
        self._waiting.append((runner, invocation))
        if not self._is_planned:
            self._next_at = max(self._next_at, self._clock())  # a pause is not made up for
            self._go_on()

    def take_back(self) -> list[Any]:
        """Remove and return the invocations that wait for their time."""
        waiting, self._waiting = self._waiting, deque()
        return [invocation for _, invocation in waiting]

    def _go_on(self):
        self._is_planned = False
        while self._waiting:
            now = self._clock()
            if now < self._next_at:
                self._is_planned = True
                self._link.call_later(self._next_at - now, self._go_on)
                return
            self._next_at = max(self._next_at, now - self._interval_s) + self._interval_s
            runner, invocation = self._waiting.popleft()
            try:
                self._start(runner, invocation)
            except Exception as error:
                self._refuse(invocation.delivery, error)

    def _start(self, runner, invocation):
        try:
            runner.begin(invocation)
        except BaseException:
            self._forget(invocation)
            raise


def interval_of(rate: str) -> float:
    """Return the seconds between two tasks of a rate such as "10/s", "100/m" or "5/h". Raises ValueError."""
    count, slash, unit = rate.partition("/") if isinstance(rate, str) else ("", "", "")
    try:
        interval_s = _UNITS[unit] / float(count)
    except (KeyError, ValueError, ZeroDivisionError):
        interval_s = 0.0
    if not 0 < interval_s < float("inf"):
        raise ValueError(f"a rate is a count for a second, minute or hour, as in '10/s', not {rate!r}")
    return interval_s
