"""Limits: expiry, length, delivery count and idleness of one queue, for queues that have such settings; the
others have none of this.

Beside queue, which asks it (guard). Everything happens at the head, as in RabbitMQ: the oldest ready message
is looked at before a delivery and when the queue's turn is over, and one timer waits for its time to come.
What leaves by a limit goes to the dead letters, if the queue has an exchange for them. Never yields; where a
great many messages have to go they go in slices.
"""
from gomq_py.broker.features.deduplication import SeenIds, has_died_in
from gomq_py.broker.features.length import DROP_HEAD, REJECT_PUBLISH_DLX
from gomq_py.broker.header_edit import PropertyEdit
from gomq_py.broker.policies.queue_settings import PLAIN
from gomq_py.hub.job import Job
from gomq_py.broker.queues import guard, queue as _queue  # noqa: F401  (its .pxd types the queue)
from gomq_py.broker.queues.retry import Retries
from gomq_py.content.fields import set_key
from gomq_py.errors import Malformed
from gomq_py.observability.log import logger
from gomq_py.storage.message import Message

LOG = logger("queue")

# Messages that expire or are dropped before others get their turn: about a millisecond.
SLICE = 500

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"

# A timer that fires this early is fine: the head is looked at again and the timer set anew. One later than
# this is set again.
TIMER_SLACK_MS = 2

# Until a queue is expired again that could not be deleted, because the definitions could not be written.
TRY_AGAIN_MS = 10_000


class QueueLimits(guard.QueueGuard):
    """What ``queue`` has to observe.

    ``dead_letters`` takes over unacked messages: ``send(queue, location, reason)``, and refused ones:
    ``send_refused(queue, message, reason)``. ``on_idle(queue)`` is called when nobody has used the queue for
    its ``expires_ms``.
    """

    __slots__ = (
        "queue", "dead_letters", "timers", "on_idle", "settings", "ttl_ms", "max_length", "max_bytes",
        "delivery_limit", "is_bounded", "is_stuck", "drops", "has_exchange", "message", "timer", "timer_ms",
        "slicing", "idle_timer", "used_ms", "seen", "seen_id", "seen_ttl_ms", "retries", "retried",
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
        self.is_stuck = False  # there is too much, and the oldest may not go before its consumer takes it
        self.configure(PLAIN)

    def configure(self, settings):
        """Observe these QueueSettings from now on; what is too much or too old already goes in the queue's
        next turn.
        """
        if (
            self.idle_timer is not None
            and (self.settings is None or settings.expires_ms != self.settings.expires_ms)
        ):
            # the time begins anew, as in RabbitMQ, and the timer waits for the old one
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

    # what the queue asks

    def admits(self, message):
        """Whether the message is new, and there is room for it where the overflow is to refuse what is too
        much.

        What consumers would take at once is no part of that: a read brings many messages, and RabbitMQ
        delivers each before it looks at the next.
        """
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
        """Whether a message is stored though the oldest may not go: it is the one that goes if not."""
        self._trim()
        if not self.is_stuck or not self._overflows(message):
            return True
        if self.has_exchange:
            self.dead_letters.send_refused(self.queue, message, MAXLEN)
        return False

    def _overflows(self, message):
        """Whether the queue would be longer or larger with the message than it may."""
        queue = self.queue
        return (
            0 <= self.max_length < queue.ready_count + 1
            or 0 <= self.max_bytes < queue.counted_bytes(message)
        )

    def appended(self):
        """Remember the message's id, and drop the head where it is too much, unless a consumer may take it in
        this turn.
        """
        if self.seen is not None and self.seen_id is not None:
            self.seen.add(self.seen_id, self.seen_ttl_ms, self.queue.scheduler.now_ms)
        if self.is_bounded and self.drops and (self.queue.ring is None or self.queue.ring.ready == 0):
            self._trim()

    def asked(self):
        """Nobody waited for the head: where it may not wait at all it is too old already, in the very
        millisecond in which it came.
        """
        left = SLICE
        while (
            left and self.queue.head(self.message) and self._due_ms(self.message) == self.message.timestamp_ms
            and self.queue.may_go(self.message)
        ):
            self._drop(self.message, EXPIRED)
            left -= 1

    def peek(self, message):
        """Fill ``message`` with the next one that is not too old; older ones before it go."""
        queue = self.queue
        now_ms = queue.scheduler.now_ms
        left = SLICE
        while queue.head(message):
            due_ms = self._due_ms(message)
            # The millisecond in which its time ends is for consumers that were waiting; what comes back in it
            # is too old.
            is_fresh = (
                due_ms == 0 or now_ms < due_ms or (now_ms == due_ms and not message.redelivered)
                or not queue.may_go(message)
            )
            left_ms = self._left_ms(message) if message.delivery_count and self.retried and is_fresh else 0
            if is_fresh and left_ms == 0:
                if message.delivery_count and (self.delivery_limit >= 0 or self.retried):
                    self._show_count(message)
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

    def settle(self):
        """The queue's turn is over: what is too much goes, what is too old goes, and the timer waits for the
        head.
        """
        queue = self.queue
        if queue.closed or self.slicing:
            return
        if self.is_bounded and self.drops:
            self._trim()
        if self.peek(self.message):
            due_ms = self._due_ms(self.message)
            if due_ms and due_ms >= queue.scheduler.now_ms:  # one that is older may not expire
                self._wait_for(due_ms)
        elif (
            not self.slicing and queue.unacked_count == 0 and self.settings is PLAIN
            and not queue.is_opening()
        ):
            self.close()
            queue.limits = None  # no message with an expiry of its own is left

    def returned(self, location, how):
        """Whether the message has come back too often, and so went to the dead letters instead, or waits
        before it is ready again.
        """
        if self.delivery_limit < 0 and not self.retried & how:
            return False
        message = self.message
        if not self.queue.read(location, message):
            return False
        if 0 <= self.delivery_limit <= message.delivery_count:
            self._let_go(location, DELIVERY_LIMIT)
            return True
        if self.retried & how:
            self.retries.wait(location, message.delivery_count + 1)
            return True
        return False

    def came_back(self):
        """What is too much with it goes at once, which as a rule is the message itself: it is older than what
        came after it.
        """
        if self.is_bounded and self.drops:
            self._trim()

    def rejected(self, location):
        """An unacked message is not wanted back."""
        self._let_go(location, REJECTED)

    def used(self):
        """The time until the queue counts as idle begins anew."""
        if self.settings.expires_ms is None:
            return
        self.used_ms = self.timers.steady_ms()
        if self.idle_timer is None and self.queue.ring is None:
            self.idle_timer = self.timers.start(int(self.settings.expires_ms), self._perhaps_idle)

    def close(self):
        """The queue is gone or closed: nothing fires any more."""
        for timer in (self.timer, self.idle_timer, self.retries):
            if timer is not None:
                timer.stop()
        self.timer = self.idle_timer = None

    def _left_ms(self, message):
        """How long the message that was just peeked has to wait still, as one of an earlier run whose
        back-off is not over; 0: not at all.
        """
        store = self.queue.store
        if not store.shows_recovered():
            return 0
        due_s = store.peeked_due_s(self.timers.now_ms() // 1000)
        if due_s == 0 and self.retried != guard.LOST | guard.RETURNED | guard.FAILED:
            return 0  # it did not wait for how it came back, or its delivery was lost with the broker
        left_ms = self.retries.left_ms(message.delivery_count, due_s)
        return left_ms if left_ms > 0 else 0

    def _is_duplicate(self, message):
        """Whether a message of the same id was stored lately; the id is kept for appended().

        One that died here and comes back is no duplicate.
        """
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

    def _show_count(self, message):
        """Say in the header x-delivery-count how often the message came back, as RabbitMQ does where that is
        limited.
        """
        try:
            edit = PropertyEdit(message.get_properties())
        except Malformed:  # whoever takes it will see
            return
        edit.headers = set_key(edit.headers, "x-delivery-count", int(message.delivery_count))
        message.own(edit.octets())

    def _due_ms(self, message):
        """When the message is too old, if it may_go(), in Unix milliseconds; 0: never."""
        due_ms = message.expires_at_ms
        if self.ttl_ms >= 0:
            by_queue_ms = message.timestamp_ms + self.ttl_ms
            if due_ms == 0 or by_queue_ms < due_ms:
                due_ms = by_queue_ms
        return due_ms

    def _drop(self, message, reason):
        """Take the message that was just peeked out of the queue."""
        location = message.location
        self.queue.shift_head()
        self._let_go(location, reason)

    def _let_go(self, location, reason):
        """An unacked message leaves the queue."""
        if self.has_exchange:
            self.dead_letters.send(self.queue, location, reason)
        else:
            self.queue.drop(location)

    def _trim(self):
        """Drop from the head until the rest is not too much."""
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
        """There is more to go than others should wait for."""
        if not self.slicing:
            self.slicing = True
            self.queue.hold()
            self.queue.scheduler.start(LimitSlice(self))

    def go_on(self):
        """The next slice of what has to go."""
        self.slicing = False
        if not self.queue.closed:
            self.queue.release()
            self.settle()

    # time

    def _wait_for(self, due_ms):
        if self.timer is not None:
            if self.timer_ms <= due_ms + TIMER_SLACK_MS:
                return
            self.timer.stop()
        self.timer_ms = due_ms
        # one more, because a message is too old only after its time
        self.timer = self.timers.start_at(due_ms + 1, self._head_is_due)

    def _head_is_due(self):
        self.timer = None
        if not self.queue.closed:
            self.queue.wake()  # its turn ends with a look at the head

    def _perhaps_idle(self):
        self.idle_timer = None
        if self.queue.ring is not None or self.settings.expires_ms is None:
            return  # the last consumer starts it again
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
    """One more slice of what has to leave a queue; what then is left gets the next one."""

    name = "what expires or is too much"

    def __init__(self, limits):
        super().__init__()
        self._limits = limits

    def step(self):
        self._limits.go_on()
        return False

    def failed(self, error):
        """A fault of the store's, or of ours: the queue cannot go on."""
        self._limits.queue.fail(error)
        return False
