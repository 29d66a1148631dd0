"""Gathered lines: lines of the log that come by the hundred, as clients do, written some milliseconds later
and many at a time.

A leaf, over the standard library's logging, and below log, which says where lines are gathered: in a process
of the broker's own. A line that is made between two sleeps of the process costs five times what it costs
behind others. Whoever comes alone is written at once. Every other line of the process waits until those that
were gathered are written, and so does the end of the process: they keep their order, whichever logger they
are of, and their time, and none is lost but by a kill.
"""
import atexit
import logging
import time
from _thread import RLock
from array import array
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

# Lines that follow another one within this time are gathered for so long: 40 logins, one after the other.
GATHER_MS = 20
# Where very many come meanwhile, they are written before others have waited for milliseconds.
MOST_LINES = 200

# Of all loggers, in their order: whose, when, what. No deque, whose blocks Python keeps: it would hold memory
# that all of many clients have left.
_waiting: "list[tuple[GatheredLines, float, str, tuple[object, ...]]]" = []
_lock = RLock()  # the system's, as of handlers


class GatheredLines:
    """Over one logger. ``call_later(milliseconds, function)`` calls in the thread that logs here."""

    def __init__(
        self, log: logging.Logger, call_later: Callable[[int, Callable[[], None]], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._call_later = call_later
        self._clock = clock
        self._wrote_s = array("d", (0.0,))  # no number, which is made anew for the last client, and stays
        self._is_armed = self._is_closed = False

    def info(self, text: str, *arguments: object) -> None:
        """As of the logger; the arguments do not change any more."""
        if not self._log.isEnabledFor(logging.INFO):
            return
        now = self._clock()
        is_alone = not _waiting and not 0 <= now - self._wrote_s[0] < GATHER_MS / 1000
        if is_alone or self._is_closed or not _may_gather():
            self._wrote_s[0] = now
            self._log.info(text, *arguments)
            return
        with _lock:
            _waiting.append((self, now, text, arguments))
        if not self._is_armed:
            self._is_armed = True
            self._call_later(GATHER_MS, self._time_is_over)
        elif len(_waiting) >= MOST_LINES:
            write_gathered()

    def close(self) -> None:
        """Nothing is gathered any more."""
        self._is_closed = True
        write_gathered()

    def _time_is_over(self) -> None:
        self._is_armed = False
        write_gathered()

    def emit(self, lines: Iterable[tuple[Any, float, str, tuple[object, ...]]]) -> None:
        """Of write_gathered(): these are next."""
        self._wrote_s[0] = self._clock()
        _emit(self._log, [self._record(*line[1:]) for line in lines])

    def _record(self, created_s: float, text: str, arguments: tuple[object, ...]) -> logging.LogRecord:
        record = logging.getLogRecordFactory()(
            self._log.name, logging.INFO, "", 0, text, arguments, None)
        record.created = created_s
        record.msecs = float(int(created_s % 1 * 1000))
        return record


def _may_gather() -> bool:
    """Whether every line of the process comes by ``write_gathered``, which a factory of records says."""
    return getattr(logging.getLogRecordFactory(), "writes_gathered", False)


def write_gathered() -> None:
    """Write everything that waits: something else is to be logged, or the process ends."""
    global _waiting
    with _lock:  # also where nothing waits: another thread may be writing it
        if _waiting:
            lines, _waiting = _waiting, []
            for one, of_it in groupby(lines, itemgetter(0)):
                one.emit(of_it)


def _emit(log: logging.Logger, records: Iterable[logging.LogRecord]) -> None:
    """Hand records of one level to all handlers of a logger, as it would itself."""
    if log.disabled:
        return
    records = [record for record in records if log.filter(record)]
    one: Any = log
    while one is not None:
        for handler in one.handlers:
            if logging.INFO < handler.level:
                continue
            handle_all = getattr(handler, "handle_all", None)
            if handle_all is not None:
                handle_all(records)
                continue
            for record in records:
                handler.handle(record)
        one = one.parent if one.propagate else None


atexit.register(write_gathered)  # before the handlers are closed, which logging has registered
