"""Limits: applies a queue's limits of expiry, length, delivery count and idle time.

Messages beyond a limit are dead-lettered or dropped. A queue with a dead letter exchange always has
QueueLimits. As in RabbitMQ only the head, the oldest ready message, is checked for expiry: before a delivery,
at the end of a delivery round, and by a timer. Large numbers of messages are removed in slices. Never
switches greenlets.
"""
from gomq_py.broker.features.deduplication import SeenIds, has_died_in
from gomq_py.broker.features.feature import QUORUM
from gomq_py.broker.features.length import DROP_HEAD, REJECT_PUBLISH_DLX
from gomq_py.broker.features.retry import FAILED, LOST, RETURNED
from gomq_py.broker.policies.queue_settings import PLAIN
from gomq_py.hub.scheduler import Job
from gomq_py.broker.queues import consumers as guard
from gomq_py.broker.queues import queue as _queue  # noqa: F401  (its .pxd types the queue)
from gomq_py.broker.queues.retry import Retries
from gomq_py.content.fields import set_key
from gomq_py.content.properties import PropertyEdit
from gomq_py.errors import Malformed
from gomq_py.observability.log import logger
from gomq_py.storage.message import Message

LOG = logger("queue")

# Messages expired or dropped before others get their turn: about a millisecond.
SLICE = 500

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"

# A timer may fire this early: it then checks the head and restarts. A timer that is later than this for a new
# head is restarted.
TIMER_SLACK_MS = 2

# Delay before a failed deletion of an expired queue is tried again.
TRY_AGAIN_MS = 10_000


class QueueLimits(guard.QueueGuard):
    """Applies the limits of ``queue``. ``dead_letters`` (a DeadLetters) sends the dead letters: unacked
    messages by ``send(queue, location, reason)``, refused ones by ``send_refused(queue, message, reason)``.
    ``on_idle(queue)`` is called when the queue was unused for ``expires_ms``.
    """

    __slots__ = (
        "queue", "dead_letters", "timers", "on_idle", "settings", "ttl_ms", "max_length", "max_bytes",
        "delivery_limit", "is_bounded", "is_stuck", "drops", "has_exchange", "message", "timer", "timer_ms",
        "slicing", "idle_timer", "used_ms", "seen", "seen_id", "seen_ttl_ms", "retries", "retried",
        "counts_failures",
    )

    def __init__(self, queue, dead_letters, timers, on_idle):
        self.queue = queue
        self.dead_letters = dead_letters
        self.timers = timers
        self.on_idle = on_idle
        self.message = Message()
        self.seen = self.seen_id = self.seen_ttl_ms = self.retries = None
        self.retried = 0
        self.timer = self.idle_timer = self.settings = None
        self.timer_ms = self.used_ms = 0
        self.slicing = False
        self.counts_failures = queue.type == QUORUM  # other queues count every return
        self.is_stuck = False  # too long, but the oldest message must stay until its consumer takes it
        self.configure(PLAIN)

    def configure(self, settings):
        """Apply new QueueSettings. Excess messages are removed in the queue's next delivery round."""
        if (
            self.idle_timer is not None
            and (self.settings is None or settings.expires_ms != self.settings.expires_ms)
        ):
            # the idle time starts anew, as in RabbitMQ; the running timer has the old time
            self.idle_timer.stop()
            self.idle_timer = None
        self.settings = settings
        self.ttl_ms = _or_minus_one(settings.message_ttl_ms)
        self.max_length = _or_minus_one(settings.max_length)
        self.max_bytes = _or_minus_one(settings.max_bytes)
        self.delivery_limit = _or_minus_one(settings.delivery_limit)
        self.is_bounded = self.max_length >= 0 or self.max_bytes >= 0
        self.drops = settings.overflow == DROP_HEAD
        self.has_exchange = settings.dead_letter_exchange is not None
        if settings.deduplication is None:
            self.seen = None
        elif self.seen is None or self.seen.settings != settings.deduplication:
            self.seen = SeenIds(settings.deduplication)
        self._configure_retries(settings.retry)
        self.used()
        self.queue.wake()

    def _configure_retries(self, retry):
        self.retried = 0 if retry is None else retry[0]
        if retry is None:
            if self.retries is not None:
                self.retries.release()
            self.retries = None
            return
        if self.retries is None:
            self.retries = Retries(self.queue, self.queue.scheduler, self.timers)
        _, self.retries.min_ms, self.retries.max_ms = retry

    # called by the queue

    def admits(self, message):
        # Messages that ready consumers would take at once do not count: a read brings many messages, and
        # RabbitMQ delivers each message before it takes the next.
        if self.seen is not None and self._is_duplicate(message):
            return guard.DUPLICATE
        if not self.is_bounded:
            return guard.ADMITTED
        if self.drops:
            return guard.ADMITTED if not self.is_stuck or self._lets_in(message) else guard.DUPLICATE
        queue = self.queue
        if not self._overflows(message):
            return guard.ADMITTED
        queue.serve()
        if not queue.closed and not self._overflows(message):
            return guard.ADMITTED
        if self.has_exchange and self.settings.overflow == REJECT_PUBLISH_DLX:
            self.dead_letters.send_refused(queue, message, MAXLEN)
        return guard.REFUSED

    def _lets_in(self, message):
        """True if the new message fits into a queue whose oldest message may not be dropped (``is_stuck``).
        Otherwise dead-letters the new message, if the queue has a dead letter exchange.
        """
        self._trim()
        if not self.is_stuck or not self._overflows(message):
            return True
        if self.has_exchange:
            self.dead_letters.send_refused(self.queue, message, MAXLEN)
        return False

    def _overflows(self, message):
        queue = self.queue
        return (
            0 <= self.max_length < queue.ready_count + 1
            or 0 <= self.max_bytes < queue.counted_bytes(message)
        )

    def appended(self):
        if self.seen is not None and self.seen_id is not None:
            self.seen.add(self.seen_id, self.seen_ttl_ms, self.queue.scheduler.now_ms)
        if self.is_bounded and self.drops and (self.queue.ring is None or self.queue.ring.ready == 0):
            self._trim()

    def asked(self):
        # No consumer was ready when they arrived.
        left = SLICE
        while (
            left and self.queue.head(self.message) and self._due_ms(self.message) == self.message.timestamp_ms
            and self.queue.may_go(self.message)
        ):
            self._drop(self.message, EXPIRED)
            left -= 1

    def peek(self, message):
        queue = self.queue
        now_ms = queue.scheduler.now_ms
        left = SLICE
        while queue.head(message):
            due_ms = self._due_ms(message)
            # In the millisecond of its expiry a message is only for consumers that were ready; a returned
            # message has expired.
            is_fresh = (
                due_ms == 0 or now_ms < due_ms or (now_ms == due_ms and not message.redelivered)
                or not queue.may_go(message)
            )
            left_ms = self._left_ms(message) if message.delivery_count and self.retried and is_fresh else 0
            if is_fresh and left_ms == 0:
                if message.delivery_count and (
                    self.delivery_limit >= 0 or self.retried or self.counts_failures
                ):
                    self._show_counts(message)
                return True
            if left == 0:
                self._go_on_later()
                return False
            left -= 1
            if is_fresh:
                queue.store.postpone()
                self.retries.wait_on(message.location, left_ms)
            else:
                self._drop(message, EXPIRED)
        return False

    def enforce(self):
        queue = self.queue
        if queue.closed or self.slicing:
            return
        if self.is_bounded and self.drops:
            self._trim()
        if queue.peek(self.message):
            due_ms = self._due_ms(self.message)
            if due_ms and due_ms >= queue.scheduler.now_ms:  # a head that is due must stay
                self._wait_for(due_ms)
        elif (
            not self.slicing and queue.unacked_count == 0 and self.settings is PLAIN
            and not queue.is_opening()
        ):
            self.close()
            queue.limits = None  # no message with its own expiry is left

    def returned(self, location, how):
        is_failure = how != RETURNED or not self.counts_failures
        if is_failure and self.delivery_limit < 0 and not self.retried & how:
            return False
        message = self.message
        if not self.queue.read(location, message):
            return False
        failures = self._failures(message)
        if not is_failure:
            self.queue.store.excuse(location, 1)
        elif 0 <= self.delivery_limit <= failures:
            self._let_go(location, DELIVERY_LIMIT)
            return True
        if self.retried & how:
            self.retries.wait(location, message.delivery_count + 1, failures + is_failure)
            return True
        return False

    def came_back(self):
        # Usually that is the requeued message, which is the oldest.
        if self.is_bounded and self.drops:
            self._trim()

    def rejected(self, location):
        self._let_go(location, REJECTED)

    def used(self):
        if self.settings.expires_ms is None:
            return
        self.used_ms = self.timers.steady_ms()
        if self.idle_timer is None and self.queue.ring is None:
            self.idle_timer = self.timers.start(int(self.settings.expires_ms), self._perhaps_idle)

    def close(self):
        for timer in (self.timer, self.idle_timer, self.retries):
            if timer is not None:
                timer.stop()
        self.timer = self.idle_timer = None

    def _left_ms(self, message):
        """Return the ms that are left of the peeked message's back-off after a restart; 0 if it is over."""
        store = self.queue.store
        if not store.shows_recovered():
            return 0
        due_s = store.peeked_due_s(self.timers.now_ms() // 1000)
        if due_s == 0 and self.retried != LOST | RETURNED | FAILED:
            return 0  # this kind of return does not wait, or the delivery was lost with the broker
        left_ms = self.retries.left_ms(self._failures(message), due_s)
        return left_ms if left_ms > 0 else 0

    def _is_duplicate(self, message):
        """True if the queue remembers the message's deduplication id. Sets ``seen_id`` to the id, or None."""
        # A message that died in this queue and comes back is no duplicate.
        self.seen_id = None
        try:
            properties = message.get_properties()
        except Malformed:
            return False
        self.seen_id, self.seen_ttl_ms = self.seen.read(properties)
        if self.seen_id is None or has_died_in(self.queue.name, properties):
            return False
        return self.seen.has(self.seen_id, self.queue.scheduler.now_ms)

    # leaving

    def _failures(self, message):
        if message.delivery_count == 0 or not self.counts_failures:
            return message.delivery_count
        # the store may know of more after a kill, which may lose the last delivery and not its return
        return max(message.delivery_count - self.queue.store.excuse(message.location, 0), 0)

    def _show_counts(self, message):
        """Set the header x-delivery-count to the number of failed deliveries, as RabbitMQ does. On quorum
        queues also sets x-acquired-count, the number of all earlier deliveries.
        """
        try:
            edit = PropertyEdit(message.get_properties())
        except Malformed:  # its consumer will see the fault
            return
        if self.counts_failures:
            edit.headers = set_key(edit.headers, "x-acquired-count", int(message.delivery_count))
        failures = self._failures(message)
        if failures:
            edit.headers = set_key(edit.headers, "x-delivery-count", int(failures))
        message.own(edit.octets())

    def _due_ms(self, message):
        """Return when the message expires by its own or the queue's TTL, in Unix ms; 0 if it does not."""
        due_ms = message.expires_at_ms
        if self.ttl_ms >= 0:
            by_queue_ms = message.timestamp_ms + self.ttl_ms
            if due_ms == 0 or by_queue_ms < due_ms:
                due_ms = by_queue_ms
        return due_ms

    def _drop(self, message, reason):
        location = message.location
        self.queue.shift_head()
        self._let_go(location, reason)

    def _let_go(self, location, reason):
        """Dead-letter an unacked message or, without a dead letter exchange, drop it."""
        if self.has_exchange:
            self.dead_letters.send(self.queue, location, reason)
        else:
            self.queue.drop(location)

    def _trim(self):
        queue = self.queue
        left = SLICE
        self.is_stuck = False
        while (
            0 <= self.max_length < queue.ready_count
            or (0 <= self.max_bytes < queue.counted_bytes(None) and queue.ready_count)
        ):
            if left == 0:
                self._go_on_later()
                return
            if not queue.head(self.message):
                return
            left -= 1
            if queue.may_go(self.message):
                self._drop(self.message, MAXLEN)
            elif not queue.spare(self.message):
                self.is_stuck = True
                return

    def _go_on_later(self):
        if not self.slicing:
            self.slicing = True
            self.queue.hold_deliveries()
            self.queue.scheduler.start(LimitSlice(self))

    def go_on(self):
        self.slicing = False
        if not self.queue.closed:
            self.queue.resume_deliveries()
            self.enforce()

    # time

    def _wait_for(self, due_ms):
        if self.timer is not None:
            if self.timer_ms <= due_ms + TIMER_SLACK_MS:
                return
            self.timer.stop()
        self.timer_ms = due_ms
        # one millisecond more, because a message expires only after its time
        self.timer = self.timers.start_at(due_ms + 1, self._head_is_due)

    def _head_is_due(self):
        self.timer = None
        if not self.queue.closed:
            self.queue.wake()  # the queue's turn checks the head

    def _perhaps_idle(self):
        self.idle_timer = None
        if self.queue.ring is not None or self.settings.expires_ms is None:
            return  # the end of the last consumer restarts the timer
        left_ms = self.used_ms + int(self.settings.expires_ms) - self.timers.steady_ms()
        if left_ms > 0:
            self.idle_timer = self.timers.start(left_ms, self._perhaps_idle)
            return
        try:
            self.on_idle(self.queue)
        except Exception:
            LOG.exception(
                "queue '%s' in vhost '%s' has expired and cannot be deleted now", self.queue.name,
                self.queue.vhost,
            )
            self.idle_timer = self.timers.start(TRY_AGAIN_MS, self._perhaps_idle)


def _or_minus_one(value):
    return -1 if value is None else int(value)


class LimitSlice(Job):
    """Job that removes one slice of expired and excess messages."""

    name = "what expires or is too much"

    def __init__(self, limits):
        super().__init__()
        self._limits = limits

    def step(self):
        self._limits.go_on()
        return False

    def failed(self, error):
        """Close the queue: its store has failed, or there is a bug."""
        self._limits.queue.fail(error)
        return False
