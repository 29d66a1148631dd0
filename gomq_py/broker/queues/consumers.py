"""Consumers: defines how a queue delivers (Consumer), whose turn it is (ConsumerRing), and what a queue asks
its limits (QueueGuard).

Doors subclass Consumer; a queue with consumers has a ConsumerRing, which holds the consumers that can take a
message now, as far as is known. A consumer without credit, or with a full socket, leaves the ring until its
door offers the consumer again, so that other consumers never wait for it.
"""
from collections import deque

from gomq_py.hub.backpressure import TakeRate

UNLIMITED = 1 << 30

# Answers of QueueGuard.admits(): refuse; store; confirm and drop.
REFUSED, ADMITTED, DUPLICATE = 0, 1, 2


class Consumer:
    """One subscription to a queue.

    ``priority``: higher is served first while it has capacity. ``queue``: set while attached.
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
        """Count of messages that the consumer may take now.

        At 0 the consumer leaves the ring until its door calls ``queue.offer(consumer)``.
        """
        return UNLIMITED

    def deliver(self, limit):
        """Take up to ``limit`` messages from the queue and write as many as the socket takes without waiting.

        Returns the octets written.
        """
        raise NotImplementedError

    def hand_over(self, message):
        """Write a message that no store has, if the socket takes it without waiting and this consumer needs
        no acks. Returns True if the message was written; otherwise False, and the queue stores it.
        """
        return False

    def wait_for(self, message, now_ms):
        """Return a function to become ``message.lacking``, if this consumer has no capacity now and the
        message may wait, since hand_over() may soon succeed. Otherwise None: the queue stores the message.
        """
        return None

    def is_behind(self):
        """For streams only: True if there are messages that the consumer has not looked at."""
        return True

    def cancelled_by(self, queue, reason):
        """Cancel the consumer because the queue is gone, unless the consumer has left the queue before."""
        if self.queue is queue:
            self.queue = None
            self.cancel(reason)

    def cancel(self, reason):
        """Tell the peer that the queue was deleted, closed or fenced and has dropped this consumer.

        ``reason`` is for the log.
        """


class ConsumerRing:
    """Keeps a queue's consumers, and gives turns to those that are ready: highest priority first, round robin
    within a priority.

    With ``single_active`` only the active consumer is ever ready; when it goes, the earliest attached of the
    highest priority takes over. ``handed``: the consumer that hand_over() last succeeded for, or None.
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
        """The TakeRate, which measures how fast the consumers take messages."""
        if self.take_rate is None:  # most rings need no rate
            self.take_rate = TakeRate()
        return self.take_rate

    def add(self, consumer):
        """Attach a consumer. A consumer that offer() accepts is ready at once."""
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
            self._unring(consumer)
        if self.active is consumer:
            self.active = self.consumers[0] if self.consumers else None
            if self.active is not None:
                self.offer(self.active)
        return True

    def offer(self, consumer):
        """Put a consumer into the ring, behind its priority, if it has capacity and may be served."""
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
        """Take the next consumer out of the ring; None if no consumer has capacity.

        Consumers that have lost their capacity meanwhile are dropped from the ring.
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
        """The consumer that take_next() would return; it stays in the ring. None without capacity."""
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
        """Move a consumer, which had its turn without leaving the ring, behind those of its priority."""
        if consumer.ringed:
            self._unring(consumer)
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

    def _unring(self, consumer):
        index = self.priorities.index(consumer.priority)
        self.levels[index].remove(consumer)
        consumer.ringed = False
        self.ready -= 1
        if not self.levels[index]:
            del self.levels[index], self.priorities[index]


class QueueGuard:
    """Defines what a queue calls of its limits; broker.queues.limits overrides the methods, which do nothing
    here. A queue without limits has no guard; each call costs such a queue one comparison with None.
    """

    __slots__ = ()

    def admits(self, message):
        """Called before the queue stores a message. Returns REFUSED, ADMITTED, or DUPLICATE to drop it."""
        return ADMITTED

    def appended(self):
        """Called when the queue has stored a message."""

    def asked(self):
        """Called before basic.get, or a count of ready messages, looks at the head."""

    def peek(self, message):
        """Fill ``message`` with the next deliverable message, as Queue.peek does."""
        return False

    def enforce(self):
        """Called at the end of the queue's turn."""

    def returned(self, location, how):
        """Called when an unacked message comes back. Returns True if the limits, not the queue, handle it."""
        return False

    def came_back(self):
        """Called when an unacked message is ready again."""

    def rejected(self, location):
        """Called when a client has rejected an unacked message without requeue."""

    def used(self):
        """Called when the queue was used: by a get, a declare, or the end of a consumer."""

    def close(self):
        """Called when the queue is deleted or closed."""
