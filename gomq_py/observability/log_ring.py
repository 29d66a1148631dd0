"""Keeps the last lines of the log for the management API, as a second log handler.

Keeps the texts, because records would keep the logged objects in memory. The number of lines and the memory
of their texts are limited.
"""
import logging
import sys
from collections import deque
from typing import Callable

from gomq_py.observability.log import ROOT, SystemLocked, escape, level_name, message_of

LINES = 1000
# Bytes of memory for the texts: one character beyond U+FFFF makes four bytes of each character of its line.
OCTETS = 512 * 1024
# Characters of one line, its traceback included.
LINE_MAX = 8 * 1024


class Line:
    """One log line. ``number`` rises by one from line to line; ``at_ms`` is its time in Unix milliseconds."""

    __slots__ = ("number", "at_ms", "level", "source", "message", "octets")

    def __init__(self, number: int, at_ms: int, level: str, source: str, message: str) -> None:
        self.number = number
        self.at_ms = at_ms
        self.level = level
        self.source = source
        self.message = message
        self.octets = sys.getsizeof(message)  # kept: the text grows when it is first encoded


class LogRing(SystemLocked):
    """A log handler that keeps the last lines of this process, at the current level. ``heard()`` is called
    for each new line, maybe in another thread, and must not switch greenlets.
    """

    def __init__(self, heard: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._heard = heard
        self._lines: deque[Line] = deque()
        self._octets = 0
        self.last = 0
        self._logger = logging.getLogger(ROOT)
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = message_of(record)
            if record.exc_info:
                trace = logging.Formatter().formatException(record.exc_info)
                message += "".join("\n    " + escape(part) for part in trace.splitlines())
        except Exception:
            self.handleError(record)  # as other handlers do: logging must not fail its caller
            return
        self.last += 1
        self._lines.append(Line(
            self.last, int(record.created * 1000), level_name(record), record.name.removeprefix(ROOT + "."),
            message[:LINE_MAX]))
        self._octets += self._lines[-1].octets
        while len(self._lines) > LINES or self._octets > OCTETS:
            self._octets -= self._lines.popleft().octets
        self._heard()

    def since(self, number: int) -> list[Line]:
        """Return the kept lines whose number is higher than ``number``, oldest first."""
        missed = min(max(0, self.last - number), len(self._lines))
        lines = list(self._lines)
        return lines[len(lines) - missed:] if missed else []

    def close(self) -> None:
        """Drop all lines, and keep no new ones."""
        self._logger.removeHandler(self)
        self._lines.clear()
        super().close()
