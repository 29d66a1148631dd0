"""Log exchange: publishes the broker's log to ``amq.rabbitmq.log`` in the default vhost, if enabled.

The exchange and routing keys (debug, info, warning, error, critical) are RabbitMQ's; the body is "area:
message". Lines are published after the next poll of the event loop, never within a change of state. Lines of
other threads are not published. Nor are lines logged while lines are published: these could cause more lines
without end.
"""
import logging
import threading
from collections import deque

from gomq_py.broker.names import to_octets
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.observability.log import ROOT, escape
from gomq_py.storage.message import Message

NAME = "amq.rabbitmq.log"

# Most waiting lines: the log has all lines of a flood, which must not fill the memory.
WAITING_LINES = 1000

_PROPERTIES = b"\x80\x00\x0atext/plain"  # content_type


class LogExchange(logging.Handler):
    """A logging handler that passes lines of level info and above to the exchange, until ``close``."""

    def __init__(self, vhost, scheduler):
        super().__init__(logging.INFO)
        self._job = LogLines(vhost, scheduler)
        self._scheduler = scheduler
        self._thread = threading.get_native_id()
        self._logger = logging.getLogger(ROOT)
        self._logger.addHandler(self)

    def emit(self, record):
        """Queue a line for publishing, unless logged while publishing or outside the scheduler's thread."""
        if self._job.is_publishing or threading.get_native_id() != self._thread:
            return
        try:
            line = f"{record.name.removeprefix(ROOT + '.')}: {escape(record.getMessage())}"
        except Exception:
            self.handleError(record)  # as other handlers do: logging must not raise
            return
        self._job.lines.append((record.levelname.lower(), line))
        self._scheduler.start(self._job)

    def close(self):
        self._logger.removeHandler(self)
        self._job.lines.clear()
        super().close()


class LogLines(Job):
    """A job that publishes the waiting ``lines``, tuples of (severity, text), in slices."""

    name = "log lines"

    def __init__(self, vhost, scheduler):
        super().__init__()
        self.lines = deque(maxlen=WAITING_LINES)
        self.is_publishing = False
        self._vhost = vhost
        self._scheduler = scheduler

    def step(self):
        exchange = self._vhost.exchanges.get(NAME)
        self.is_publishing = True
        clock = SliceClock()
        try:
            while self.lines and exchange is not None:
                severity, line = self.lines.popleft()
                message = Message()
                message.assign(
                    NAME.encode(), severity.encode(), _PROPERTIES, to_octets(line), self._scheduler.now_ms)
                for destination in self._vhost.route(exchange, severity):
                    destination.publish(message)
                if clock.is_over():
                    return bool(self.lines)
        finally:
            self.is_publishing = False
        return False

    def failed(self, error):
        """Return True, so that the job goes on, if lines are left. The line that failed is not published."""
        return bool(self.lines)
