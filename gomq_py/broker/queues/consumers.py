"""Consumers: the interfaces between a queue, its consumers and its limits.

Consumer is the interface of a consumer to its queue; the AMQP and MQTT servers subclass it. ConsumerRing
decides which consumer gets the next message. QueueGuard is the interface of a queue to its limits.

The ring holds the consumers that can take a message now. A consumer without credit, or with a full socket,
leaves the ring until its server calls ``queue.offer``. Other consumers never wait for it.
"""
from collections import deque

from gomq_py.hub.backpressure import TakeRate

UNLIMITED = 1 << 30

# Answers of QueueGuard.admits(): refuse; store; confirm and drop.
REFUSED, ADMITTED, DUPLICATE = 0, 1, 2


class Consumer:
    """One subscription to a queue. ``priority``: consumers with a higher number are served first. ``queue``:
    the queue that the consumer is attached to, or None. ``ringed``: True while the consumer is in the queue's
    ring.
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
        """Return how many messages the consumer can take now. At 0 the queue does not serve the consumer
        until its server calls ``queue.offer(consumer)``.
        """
        return UNLIMITED

    def deliver(self, limit):
        """Take up to ``limit`` messages from the queue and write them to the socket. Returns the count of
        bytes written. Stops early when the socket would block.
        """
        raise NotImplementedError

    def hand_over(self, message):
        """Write a message that is not stored. Returns True if it was written. Returns False if the socket
        would block, or if this consumer needs acks. The queue then stores the message.
        """
        return False

    def wait_for(self, message, now_ms):
        """Let the message wait until this consumer has capacity again. Returns the value for
        ``message.lacking`` (see Destination.publish); None if the queue must store the message.
        """
        return None

    def is_behind(self):
        """True if the queue may have messages for this consumer. Consumers of streams override this."""
        return True

    def cancelled_by(self, queue, reason):
        """Cancel the consumer because ``queue`` was deleted or closed, unless it has left that queue."""
        if self.queue is queue:
            self.queue = None
            self.cancel(reason)

    def cancel(self, reason):
        """Tell the client that its queue was deleted or closed. ``reason`` is a text for the log."""


class ConsumerRing:
    """A queue's consumers, and the order in which they are served.

    The highest priority comes first. Consumers of equal priority are served in rotation. ``handed``: the last
    consumer that took a message by hand_over(), or None.

    With ``single_active`` only the active consumer is served. When it leaves, the first attached consumer of
    the highest priority becomes active.
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
        """Return the TakeRate, which measures how fast the consumers take messages."""
        if self.take_rate is None:  # most rings need no rate
            self.take_rate = TakeRate()
        return self.take_rate

    def add(self, consumer):
        """Attach a consumer, and put the consumer into the ring if offer() allows this."""
        at = len(self.consumers)
        while at > 0 and self.consumers[at - 1].priority < consumer.priority:
            at -= 1
        self.consumers.insert(at, consumer)
        if self.single_active and self.active is None:
            self.active = consumer
        self.offer(consumer)

    def remove(self, consumer):
        """Detach a consumer. Returns False if the consumer was not attached."""
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
        """Remove the next consumer from the ring and return it; None if the ring is empty. Consumers without
        capacity are removed and skipped.
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
        """Return the next consumer without removing it from the ring; None if the ring is empty. Consumers
        without capacity are removed and skipped.
        """
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
        """Move a consumer that was just served behind the others of its priority."""
        if consumer.ringed:
            self.unring(consumer)
        self.offer(consumer)

    def ready_at_top(self):
        """Count the consumers that have the highest priority in the ring."""
        for level in self.levels:
            if level:
                return len(level)
        return 0

    def ready_priority(self):
        """Return the highest priority in the ring, which must not be empty."""
        for index, level in enumerate(self.levels):
            if level:
                return self.priorities[index]
        raise AssertionError("nobody is ready")

    def unring(self, consumer):
        """Remove a consumer from the ring, which must contain it."""
        index = self.priorities.index(consumer.priority)
        self.levels[index].remove(consumer)
        consumer.ringed = False
        self.ready -= 1
        if not self.levels[index]:
            del self.levels[index], self.priorities[index]


class QueueGuard:
    """The interface by which a queue calls its limits. The methods do nothing; QueueLimits overrides them. A
    queue without limits has no guard.
    """

    __slots__ = ()

    def admits(self, message):
        """Decide about a message before it is stored. Returns ADMITTED (store it), REFUSED (the queue is
        full), or DUPLICATE (confirm it without storing it).
        """
        return ADMITTED

    def appended(self):
        """Remember the deduplication id of a message that the queue has stored, and drop excess messages."""

    def asked(self):
        """Drop messages with a TTL of 0 from the head. Called before basic.get or counting ready messages."""

    def peek(self, message):
        """Drop expired messages; fill ``message`` with the next. Returns False if none can be delivered."""
        return False

    def enforce(self):
        """Drop excess and expired messages. Called at the end of each delivery round of the queue."""

    def returned(self, location, how):
        """Called before an unacked message is requeued. Returns False if the queue must make it ready.
        Returns True for a message at its delivery limit, which is dead-lettered or dropped. Also returns True
        if the message waits for its back-off. ``how``: LOST, RETURNED or FAILED (features.retry).
        """
        return False

    def came_back(self):
        """Drop excess messages. Called when a requeued message is ready again."""

    def rejected(self, location):
        """Dead-letter or drop an unacked message that a client has rejected without requeue."""

    def used(self):
        """Restart the idle time after which the queue expires, because the queue was used."""

    def close(self):
        """Stop all timers, because the queue is deleted or closed, or needs no limits any more."""
