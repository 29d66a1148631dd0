"""Writes the log: level, time, source and message, as a line of text or a JSON object.

Uses the standard library's logging, so that libraries' messages are in the same log. Peers' text is escaped
here: a user name with a line break cannot forge a line. Callers log names, never credentials.
"""
import json
import logging
import re
import sys
import time
from _thread import RLock
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from logging import Formatter, Handler, Logger, LogRecord
from typing import Any

from gomq_py.observability.secrets import without_passwords

ROOT = "gomq_py"
LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR,
    "fatal": logging.CRITICAL, "none": logging.CRITICAL + 1,
}
# Seconds between two complaints that the log cannot be written: a full disk would cause one per line.
COMPLAIN_EVERY_S = 60.0
_NAMES = {number: name for name, number in LEVELS.items()}
# Characters of a message; a definition's name may have megabytes.
MESSAGE_MAX = 16384
# C0, DEL, C1 and the two Unicode line separators, on which a terminal or a line-wise reader would act. Lone
# surrogates (octets that are no UTF-8) cannot be written to the stream at all.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


# Without it the standard library prints warnings on standard error, without time or source, in a program that
# embeds a broker and sets up no logging.
logging.getLogger(ROOT).addHandler(logging.NullHandler())


def logger(source: str) -> Logger:
    """Return the logger of one part of the broker. ``source`` is its name in each line, such as "amqp"."""
    return logging.getLogger(f"{ROOT}.{source}")


def message_of(record: LogRecord) -> str:
    """Return a record's message, escaped and cut to MESSAGE_MAX characters. It is kept for other handlers."""
    made = record.__dict__.get("gomq_py_message")
    if made is None:
        text = record.getMessage()
        if len(text) > MESSAGE_MAX:
            text = f"{text[:MESSAGE_MAX]}... ({len(text) - MESSAGE_MAX} more characters)"
        made = record.__dict__["gomq_py_message"] = escape(text)
    return str(made)


def escape(text: str) -> str:
    """Return ``text`` on one line: control characters as escapes, passwords in URIs as asterisks."""
    if text.isprintable() and "://" not in text:  # nothing to escape, in a tenth of the time
        return text
    return _UNPRINTABLE.sub(
        lambda match: match.group().encode("unicode_escape").decode("ascii"), without_passwords(text)
    )


def level_name(record: LogRecord) -> str:
    """Return the word that the log has for a record's level."""
    return _NAMES.get(record.levelno) or record.levelname.lower()


def _source(record: LogRecord) -> str:
    return record.name.removeprefix(ROOT + ".")


def _when(record: LogRecord) -> str:
    """Return a record's UTC time with milliseconds, as text that sorts by time."""
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(64)
def _place(level: str, source: str) -> str:
    return f" {level:5} {source}: "


@lru_cache(2)
def _second(unix_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_s))


class TextFormatter(Formatter):
    """Makes lines such as ``2026-01-31T12:00:00.123Z info amqp connection 127.0.0.1:5000 closed: ...``. A
    traceback follows, indented.
    """

    def format(self, record: LogRecord) -> str:
        line = _when(record) + _place(level_name(record), _source(record)) + message_of(record)
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join("\n    " + escape(part) for part in trace.splitlines())
        return line


class JSONFormatter(Formatter):
    """Makes a JSON object per line: time, level, source, message and, for a crash, traceback."""

    def format(self, record: LogRecord) -> str:
        entry = {
            "time": _when(record),
            "level": level_name(record),
            "source": _source(record),
            "message": message_of(record),
        }
        if record.exc_info:
            entry["traceback"] = escape(self.formatException(record.exc_info)).replace("\\n", "\n")
        return json.dumps(entry)


# Fields of a standard record that no line of the broker shows.
_UNTOLD: dict[str, Any] = {
    **dict.fromkeys(("pathname", "filename", "module"), "(unknown file)"), "lineno": 0,
    "funcName": "(unknown function)", "relativeCreated": 0.0,
    **dict.fromkeys(("exc_text", "thread", "threadName", "processName", "process", "taskName")),
}


class Line(LogRecord):
    """A log record without thread, process and code position, which would take a quarter of a call's time."""

    def __init__(  # noqa: PLR0913 - the standard library calls it so
        self, name: str, level: int, _pathname: str, _lineno: int, message: object, args: Any,
        exc_info: Any, _func: str | None = None, sinfo: str | None = None, **_more: object,
    ) -> None:
        self.__dict__.update(_UNTOLD)
        self.name = name
        self.msg = message
        # a single mapping is for %(name)s, as in the standard library
        self.args = args[0] if args and len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
        self.levelname = logging.getLevelName(level)
        self.levelno = level
        self.exc_info = exc_info
        self.stack_info = sinfo
        self.created = now = time.time()
        self.msecs = float(int(now % 1 * 1000))


class SystemLocked(Handler):
    """A log handler whose lock is the system's, not gevent's. ``emit`` must not switch greenlets."""

    # gevent's lock would let greenlets wait for each other, and takes half the time of a write.
    def createLock(self) -> None:
        """Make the lock. A forked child calls this again."""
        super().createLock()
        self.lock = self._lock = RLock()

    def handle(self, record: LogRecord) -> Any:
        """Emit the record, under the lock. Faster than the standard library's if there are no filters."""
        if self.filters:
            return super().handle(record)
        with self._lock:
            self.emit(record)
        return True


class _Complaining(SystemLocked, logging.StreamHandler):
    """A handler that reports lost log lines on standard error, in one line with the reason."""

    _complained_s = -COMPLAIN_EVERY_S

    # The standard library would print a traceback and all arguments of the line.
    def emit(self, record: LogRecord) -> None:
        """Write the line. The caller has the handler's lock."""
        # The standard library would take it anew to flush.
        stream = self.stream
        if stream is None:  # closed and reopened
            super().emit(record)
            return
        try:
            stream.write(self.format(record) + self.terminator)
            stream.flush()
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def handleError(self, record: LogRecord) -> None:
        """Print one line that says why a log line was lost, at most every COMPLAIN_EVERY_S seconds."""
        error = sys.exc_info()[1]
        if time.monotonic() - self._complained_s < COMPLAIN_EVERY_S:
            return
        self._complained_s = time.monotonic()
        what = (
            error.strerror if isinstance(error, OSError)
            else f"{type(error).__name__} at {_caller()}"
        )
        with suppress(OSError, ValueError):  # standard error itself may be lost
            print(f"gomq-py: lines of the log are lost: {what}", file=sys.stderr, flush=True)


def _caller() -> str:
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename in (__file__, logging.__file__):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class _FileHandler(_Complaining, logging.FileHandler):
    def close(self) -> None:
        # closing writes that line again, a full disk refuses it, and the new file must not wait
        with suppress(OSError):
            super().close()


def configure(level: str = "info", format_: str = "text", path: str = "") -> Handler:
    """Send the log to ``path`` (empty: standard error) from now on. Return the handler. Raises OSError."""
    handler = open_handler(format_, path)
    use(handler)
    set_level(level)
    return handler


def open_handler(format_: str, path: str) -> Handler:
    """Return a handler that writes to ``path`` (empty: standard error), not yet in use. Raises OSError."""
    handler: Handler = _FileHandler(path, encoding="utf-8") if path else _Complaining(sys.stderr)
    handler.setFormatter(JSONFormatter() if format_ == "json" else TextFormatter())
    return handler


def use(handler: Handler) -> None:
    """Write the log with this handler from now on, and close earlier ones without losing a line."""
    root = logging.getLogger()
    before = list(root.handlers)
    root.addHandler(handler)
    for old in before:
        root.removeHandler(old)
        old.close()
    # Libraries warn rarely and with cause; their info is noise to an operator.
    root.setLevel(logging.WARNING)
    # No line names its thread: for that name a greenlet first gets a thread object, which is a quarter of the
    # line's cost (24 of 90 us).
    logging.logThreads = False
    logging.setLogRecordFactory(Line)
    # Nor does a line name its process or its place in the code (howto/logging, "Optimization"); _caller()
    # finds the place for complaints.
    logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None


def set_level(level: str) -> None:
    """Set the least severe level that is logged, a key of LEVELS. Takes effect at once."""
    logging.getLogger(ROOT).setLevel(LEVELS[level])
