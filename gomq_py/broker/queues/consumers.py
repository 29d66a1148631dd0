"""Consumers: the interface of a consumer to its queue (Consumer), the order in which consumers get messages
(ConsumerRing), and the interface of a queue to its limits (QueueGuard).

Protocol servers subclass Consumer. A queue with consumers has a ConsumerRing, which holds the consumers that
can take a message now. A consumer without credit, or with a full socket, leaves the ring until its server
offers it again (``queue.offer``), so that other consumers never wait for it.
"""
from collections import deque

from gomq_py.hub.backpressure import TakeRate

UNLIMITED = 1 << 30

# Answers of QueueGuard.admits(): refuse; store; confirm and drop.
REFUSED, ADMITTED, DUPLICATE = 0, 1, 2


class Consumer:
    """One subscription to a queue.

    ``priority``: the queue serves consumers with a higher number first, while they have capacity. ``queue``:
    the queue that the consumer is attached to, or None.
    """

    __slots__ = ("queue", "tag", "arguments", "priority", "no_ack", "exclusive", "ringed")

    def __init__(self, tag, no_ack=False, exclusive=False, priority=0, arguments=None):
        self.queue = None
        self.tag = tag
        self.arguments = arguments
        self.priority = priority
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.ringed = False

    def capacity(self):
        """Return how many messages the consumer can take now.

        At 0 the consumer leaves the queue's ring, until its server calls ``queue.offer(consumer)``.
        """
        return UNLIMITED

    def deliver(self, limit):
        """Take up to ``limit`` messages from the queue, and write as many as the socket takes without
        waiting. Returns the count of octets written.
        """
        raise NotImplementedError

    def hand_over(self, message):
        """Write a message that was not stored. Returns True if it was written; False, so that the queue
        stores it, if the socket would wait or this consumer needs acks.
        """
        return False

    def wait_for(self, message, now_ms):
        """Let the message wait for this consumer, which has no capacity now. Returns the function to set as
        ``message.lacking``; None if the queue must store the message.
        """
        return None

    def is_behind(self):
        """True if a stream has messages that this consumer was not offered yet."""
        return True

    def cancelled_by(self, queue, reason):
        """Cancel the consumer, because ``queue`` was deleted or closed, unless it has left the queue."""
        if self.queue is queue:
            self.queue = None
            self.cancel(reason)

    def cancel(self, reason):
        """Inform the client that its queue was deleted, closed or fenced, and no longer delivers to it.

        ``reason`` is for the log.
        """


class ConsumerRing:
    """A queue's consumers, and the order in which consumers with capacity are served: highest priority first,
    round robin within a priority. ``handed``: the last consumer that took a message by hand_over(), or None.

    With ``single_active`` only the active consumer is served. When it leaves, the consumer of the highest
    priority (of equal ones the first attached) becomes active.
    """

    __slots__ = (
        "consumers", "single_active", "active", "levels", "priorities", "ready", "handed", "take_rate",
    )

    def __init__(self, single_active=False):
        self.consumers = []
        self.single_active = single_active
        self.active = None
        self.levels = []
        self.priorities = []
        self.ready = 0
        self.handed = self.take_rate = None

    def rate(self):
        """The TakeRate, which measures how fast the consumers take messages; made at the first call."""
        if self.take_rate is None:  # most rings need no rate
            self.take_rate = TakeRate()
        return self.take_rate

    def add(self, consumer):
        """Attach a consumer, and offer() it."""
        at = len(self.consumers)
        while at > 0 and self.consumers[at - 1].priority < consumer.priority:
            at -= 1
        self.consumers.insert(at, consumer)
        if self.single_active and self.active is None:
            self.active = consumer
        self.offer(consumer)

    def remove(self, consumer):
        """Detach a consumer. Returns whether it was attached."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        if self.handed is consumer:
            self.handed = None
        if consumer.ringed:
            self.unring(consumer)
        if self.active is consumer:
            self.active = self.consumers[0] if self.consumers else None
            if self.active is not None:
                self.offer(self.active)
        return True

    def offer(self, consumer):
        """Put a consumer with capacity into the ring, behind the others of its priority. With
        ``single_active`` only the active consumer is put in.
        """
        if (
            consumer.ringed or (self.single_active and consumer is not self.active)
            or consumer.capacity() <= 0
        ):
            return
        index = 0
        while index < len(self.priorities) and self.priorities[index] > consumer.priority:
            index += 1
        if index == len(self.priorities) or self.priorities[index] != consumer.priority:
            self.priorities.insert(index, consumer.priority)
            self.levels.insert(index, deque())
        self.levels[index].append(consumer)
        consumer.ringed = True
        self.ready += 1

    def take_next(self):
        """Remove the next consumer with capacity from the ring and return it; None if there is none.

        Consumers that have lost their capacity are removed, too.
        """
        for level in self.levels:
            while level:
                consumer = level.popleft()
                consumer.ringed = False
                self.ready -= 1
                if consumer.capacity() > 0:
                    return consumer
        return None

    def show_next(self):
        """Return the next consumer with capacity, which stays in the ring; None if there is none."""
        for level in self.levels:
            while level:
                consumer = level[0]
                if consumer.capacity() > 0:
                    return consumer
                level.popleft()
                consumer.ringed = False
                self.ready -= 1
        return None

    def pass_on(self, consumer):
        """Move a consumer that was just served, if still in the ring, behind the others of its priority."""
        if consumer.ringed:
            self.unring(consumer)
        self.offer(consumer)

    def ready_at_top(self):
        """Count of ready consumers with the highest priority in the ring; 0 if the ring is empty."""
        for level in self.levels:
            if level:
                return len(level)
        return 0

    def ready_priority(self):
        """The highest priority in the ring, which must not be empty."""
        for index, level in enumerate(self.levels):
            if level:
                return self.priorities[index]
        raise AssertionError("nobody is ready")

    def unring(self, consumer):
        """Remove a consumer from the ring, which it must be in, until it is offered again."""
        index = self.priorities.index(consumer.priority)
        self.levels[index].remove(consumer)
        consumer.ringed = False
        self.ready -= 1
        if not self.levels[index]:
            del self.levels[index], self.priorities[index]


class QueueGuard:
    """The interface by which a queue calls its limits. Its methods do nothing; QueueLimits overrides them. A
    queue without limits has no guard.
    """

    __slots__ = ()

    def admits(self, message):
        """Called before a message is stored. Returns ADMITTED (store it), REFUSED (refuse it), or DUPLICATE
        (confirm it, but do not store it).
        """
        return ADMITTED

    def appended(self):
        """Called when the queue has stored a message: remember its deduplication id, and drop excess
        messages.
        """

    def asked(self):
        """Called before basic.get takes the oldest message, and before ready messages are counted: drop
        messages with a TTL of 0 from the head.
        """

    def peek(self, message):
        """Fill ``message`` with the next deliverable message, without taking it; False if there is none."""
        return False

    def enforce(self):
        """Called at the end of the queue's turn, after the deliveries: drop excess and expired messages, and
        start the timer for the next expiry.
        """

    def returned(self, location, how):
        """Called when an unacked message is to be requeued: dead-letter it at its delivery limit, or start
        its back-off, and return True. False: the queue makes it ready. ``how``: LOST, RETURNED or FAILED
        (features.retry).
        """
        return False

    def came_back(self):
        """Called when a requeued message is ready again: drop excess messages."""

    def rejected(self, location):
        """Called when a client has rejected an unacked message without requeue: dead-letter or drop the
        message.
        """

    def used(self):
        """Called at a get, at a declare and when the last consumer has gone: restart the idle time after
        which the queue expires.
        """

    def close(self):
        """Called when the queue is deleted or closed: stop all timers."""
