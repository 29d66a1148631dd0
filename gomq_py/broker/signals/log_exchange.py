"""Log exchange: publishes the broker's log to ``amq.rabbitmq.log`` in the default vhost, if enabled.

RabbitMQ's exchange and routing keys (debug, info, warning, error, critical); the body is "area: message".
Lines go out after the next poll, so logging within a change of state publishes nothing in its middle, and
lines logged by publishing itself are not published.
"""
import logging
import threading
from collections import deque

from gomq_py.hub.job import Job, SliceClock
from gomq_py.observability.log import ROOT, escape
from gomq_py.storage.message import Message

NAME = "amq.rabbitmq.log"

# Most waiting lines: the log itself has all of a flood, which must not fill the memory.
WAITING_LINES = 1000

_PROPERTIES = b"\x80\x00\x0atext/plain"  # content_type


class LogExchange(logging.Handler):
    """Hands log lines to the exchange. ``close`` it with the broker."""

    def __init__(self, vhost, scheduler):
        super().__init__(logging.INFO)
        self._vhost = vhost
        self._scheduler = scheduler
        self._lines = deque(maxlen=WAITING_LINES)
        self._publishing = False
        self._job = LogLines(self)
        self._thread = threading.get_native_id()
        self._logger = logging.getLogger(ROOT)
        self._logger.addHandler(self)

    def emit(self, record):
        """Keep the line until after the next poll; not from other threads, which must not wake the scheduler.
        """
        if self._publishing or threading.get_native_id() != self._thread:
            return
        try:
            line = f"{record.name.removeprefix(ROOT + '.')}: {escape(record.getMessage())}"
        except Exception:
            self.handleError(record)  # as other handlers do: logging must not raise
            return
        self._lines.append((record.levelname.lower(), line))
        self._scheduler.start(self._job)

    def close(self):
        """Publish no more."""
        self._logger.removeHandler(self)
        self._lines.clear()
        super().close()

    def has_lines(self):
        """Whether lines wait."""
        return bool(self._lines)

    def publish_some(self):
        """Publish some waiting lines. Returns whether there are more."""
        exchange = self._vhost.exchanges.get(NAME)
        self._publishing = True
        clock = SliceClock()
        try:
            while self._lines and exchange is not None:
                severity, line = self._lines.popleft()
                message = Message()
                message.assign(
                    NAME.encode(), severity.encode(), _PROPERTIES, line.encode("utf-8", "surrogateescape"),
                    self._scheduler.now_ms,
                )
                for destination in self._vhost.route(exchange, severity):
                    destination.publish(message)
                if clock.is_over():
                    return bool(self._lines)
        finally:
            self._publishing = False
        return False


class LogLines(Job):
    """Publishes the lines of a LogExchange."""

    name = "log lines"

    def __init__(self, exchange):
        super().__init__()
        self._exchange = exchange

    def step(self):
        return self._exchange.publish_some()

    def failed(self, error):
        """Go on: the failed line is in the log itself."""
        return self._exchange.has_lines()
