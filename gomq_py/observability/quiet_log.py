"""Logs at most one line per key and interval, for events so frequent that their lines would fill the disk.

Suppressed lines are counted, and the next line of the same key reports the number.
"""
import logging
import time
from collections.abc import Callable, Hashable

# Seconds between two lines of one key. Long enough that 1000 addresses at once write 100 lines a second;
# short enough to show that the events go on.
INTERVAL_S = 10.0
# Remembered keys; the oldest is dropped, so that many addresses cost no memory.
KEYS = 1024


class QuietLog:
    """Logs at most one line per key and interval, and at most ``most`` lines of all keys (None: no limit) per
    interval. A later line says how many lines were left out. ``clock`` returns seconds.
    """

    def __init__(
        self, log: logging.Logger, interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic, most: int | None = None,
    ):
        self._most = most
        self._ends_s, self._lines, self._beyond = 0.0, 0, 0  # of the interval: end, lines, suppressed lines
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._quiet: dict[Hashable, list[float]] = {}

    def warning(self, key: Hashable, text: str, *arguments: object) -> None:
        """Log a warning, unless a line with this ``key`` was logged in the last ``interval_s``."""
        self._write(logging.WARNING, key, text, arguments)

    def info(self, key: Hashable, text: str, *arguments: object) -> None:
        """Log at level info, unless a line with this ``key`` was logged in the last ``interval_s``."""
        self._write(logging.INFO, key, text, arguments)

    def error(
        self, key: Hashable, text: str, *arguments: object, exc_info: BaseException | None = None
    ) -> None:
        """Log at level error, unless a line with this ``key`` was logged in the last ``interval_s``."""
        self._write(logging.ERROR, key, text, arguments, exc_info)

    def _write(
        self, level: int, key: Hashable, text: str, arguments: tuple[object, ...],
        exc_info: BaseException | None = None,
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        now = self._clock()
        state = self._quiet.get(key)
        if state is not None and now < state[0]:
            state[1] += 1
            return
        if self._most is not None and not self._has_room(now, level):
            return
        left_out = int(state[1]) if state is not None else 0
        self._quiet.pop(key, None)
        while len(self._quiet) >= KEYS:
            del self._quiet[next(iter(self._quiet))]
        self._quiet[key] = [now + self._interval_s, 0]
        if left_out:
            text += " (and %d more like it since the last line)"
            arguments = (*arguments, left_out)
        self._log.log(level, text, *arguments, exc_info=exc_info)

    def _has_room(self, now: float, level: int) -> bool:
        """Count a line, and return False if the interval has had ``most`` lines already."""
        # A new interval first logs how many were left out.
        if now >= self._ends_s:
            beyond, self._beyond, self._lines = self._beyond, 0, 0
            self._ends_s = now + self._interval_s
            if beyond:
                self._log.log(level, "%d more lines like the following were left out", beyond)
        self._lines += 1
        if self._lines > self._most:  # type: ignore[operator]
            self._beyond += 1
            return False
        return True
