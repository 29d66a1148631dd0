"""Delays tasks by gomq-py's delayed exchange, or on other brokers by queues whose messages expire.

In both cases the message reaches the tasks' exchange X in the end, with the task's routing key:

    gomq-py    X.delayed, an x-delayed-message exchange that passes everything on to X; header x-delay
               X.unique, an exchange that drops duplicates and passes other messages on to X.delayed
    others     X.delay.100, .200, .400 ... (milliseconds): for each a fanout exchange and a queue of the same
               name, which dead-letters expired messages to X. A long delay takes several such waits, the
               longest that fits first: a worker that gets a task before its time (header x-task-due) delays
               it again. All messages of a queue have one time to live, so that they expire in their order.
"""

import hashlib
import time

from gomq_py.dispatcher.errors import NotSupported
from gomq_py.dispatcher.tasks import DUE_HEADER

# The shortest wait in a queue; clocks of two machines and the trip through two exchanges differ by less.
STEP_MS = 100
STEPS = 26  # the longest is 2**25 steps, 39 days; a longer wait passes through it more than once
# A shorter rest counts as over: clock rounding may return a task early.
_EARLY_MS = 50
UNIQUE_HEADER = "x-deduplication-header"
SCHEDULE_HEADER = "x-schedule"
# Ids remembered by the exchange; a million would take 100 MB.
UNIQUE_COUNT = 65536
# A longer ``unique`` text is sent as its hash: arguments may be large, and a header fits into a frame.
_UNIQUE_OCTETS = 200


class BrokerDelays:
    """Delays tasks by a delayed exchange of gomq-py, which can also drop duplicates of unique tasks."""

    can_be_unique = can_be_keyed = can_repeat = can_count_streams = True

    def __init__(self, exchange):
        self._exchange = exchange
        self._delayed, self._unique = f"{exchange}.delayed", f"{exchange}.unique"

    def declare(self, channel, unique_s=None):
        """Declare the exchanges. ``unique_s``: seconds for which duplicates are dropped, or None."""
        channel.exchange_declare(
            self._delayed, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
        channel.exchange_bind(self._exchange, self._delayed)
        if unique_s is not None:
            channel.exchange_declare(
                self._unique,
                "fanout",
                durable=True,
                arguments={
                    "x-message-deduplication": True,
                    "x-cache-size": UNIQUE_COUNT,
                    "x-cache-ttl": int(unique_s * 1000),
                },
            )
            channel.exchange_bind(self._delayed, self._unique)

    def place(self, delay_s, unique=""):
        """Return (exchange, headers) for a task to run in ``delay_s``. ``unique``: as in Task."""
        headers: dict = {"x-delay": round(delay_s * 1000)} if delay_s > 0 else {}
        if unique:
            return self._unique, {**headers, UNIQUE_HEADER: _short(unique)}
        return self._delayed, headers

    def place_schedule(self, schedule):
        """Return (exchange, headers) for a task that the broker sends at each time of the schedule."""
        return self._delayed, {SCHEDULE_HEADER: schedule}

    def prepare(self, channel, delay_s):
        """Do nothing: ``declare`` has declared the exchange for all delays."""


class QueueDelays:
    """Delays tasks in queues whose messages expire, on brokers without a delayed exchange."""

    can_be_unique = can_be_keyed = can_repeat = can_count_streams = False

    def __init__(self, exchange, clock=time.time):
        self._exchange = exchange
        self._clock = clock
        self._there: set = set()

    def declare(self, channel, unique_s=None):
        """Declare nothing: ``prepare`` declares a queue per delay. Raises NotSupported for ``unique_s``."""
        self._there.clear()
        if unique_s is not None:
            raise _not_unique()

    def place(self, delay_s, unique=""):
        if unique:
            raise _not_unique()
        due_ms = round((self._clock() + delay_s) * 1000)
        return f"{self._exchange}.delay.{self._longest(delay_s)}", {DUE_HEADER: due_ms}

    def place_schedule(self, schedule):
        raise NotSupported(
            "periodic tasks need a broker with schedules, which gomq-py has and this broker has not")

    def prepare(self, channel, delay_s):
        wait_ms = self._longest(delay_s)
        if wait_ms in self._there:
            return
        name = f"{self._exchange}.delay.{wait_ms}"
        channel.exchange_declare(name, "fanout", durable=True)
        channel.queue_declare(
            name, durable=True, arguments={"x-message-ttl": wait_ms, "x-dead-letter-exchange": self._exchange}
        )
        channel.queue_bind(name, name)
        self._there.add(wait_ms)

    @staticmethod
    def _longest(delay_s):
        steps = max(1, int(delay_s * 1000) // STEP_MS)
        return STEP_MS * 2 ** min(steps.bit_length() - 1, STEPS - 1)


def _not_unique():
    return NotSupported(
        "unique tasks need a broker with deduplication, which gomq-py has and this broker has not")


def _short(unique):
    octets = unique.encode("utf-8", "surrogatepass")
    return unique if len(octets) <= _UNIQUE_OCTETS else f"sha256:{hashlib.sha256(octets).hexdigest()}"


def left_s(headers, clock=time.time):
    """Return the seconds until a task with these message headers may run; 0: now."""
    due_ms = headers.get(DUE_HEADER)
    if not isinstance(due_ms, int) or isinstance(due_ms, bool):
        return 0
    left_ms = due_ms - clock() * 1000
    return left_ms / 1000 if left_ms > _EARLY_MS else 0


def delays_of(server_properties, exchange):
    """Return a BrokerDelays if the server properties are gomq-py's, otherwise a QueueDelays."""
    # Not by the product, which says RabbitMQ: docs/decisions/0004.
    platform = server_properties.get("platform", "")
    platform = platform.decode("utf-8", "replace") if isinstance(platform, bytes) else str(platform)
    return BrokerDelays(exchange) if platform.startswith("gomq-py") else QueueDelays(exchange)
