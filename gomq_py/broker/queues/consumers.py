"""Consumers: the interface through which a queue delivers, the ring that decides whose turn it is, and the
guard that applies a queue's limits.

Doors subclass Consumer; queues keep one ConsumerRing. The ring holds the consumers that can take a message
now, as far as is known. A consumer without credit, or with a full socket, leaves the ring until its door
offers it again, so that it never holds up the others.
"""
from collections import deque

from gomq_py.hub.backpressure import TakeRate

UNLIMITED = 1 << 30

# Answers of QueueGuard.admits(): refuse; store; confirm and drop.
REFUSED, ADMITTED, DUPLICATE = 0, 1, 2

# How a message comes back: LOST at its channel's end; RETURNED by basic.nack or basic.recover; FAILED by
# basic.reject. Bits, which a setting combines.
LOST, RETURNED, FAILED = 1, 2, 4


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
        """How many messages it may take now.

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
        no acks. Returns whether it was written.
        """
        return False

    def wait_for(self, message, now_ms):
        """The ``lacking`` of a message that may wait, if this consumer has no capacity now and hand_over()
        may soon succeed. None: the queue is to store the message.
        """
        return None

    def is_behind(self):
        """For streams only: True if there are messages that the consumer has not looked at."""
        return True

    def cancelled_by(self, queue, reason):
        """Cancel the consumer of a deleted queue, unless it has left the queue by itself."""
        if self.queue is queue:
            self.queue = None
            self.cancel(reason)

    def cancel(self, reason):
        """Tell the peer that the queue has dropped this consumer (deleted, closed, fenced).

        ``reason`` is for the log.
        """


class ConsumerRing:
    """A queue's consumers, and the ready ones in the order of their turns: highest priority first, round
    robin within a priority.

    With ``single_active`` only the active consumer is ever ready; when it goes, the next of highest priority
    in order of attaching takes over. ``handed``: the consumer that was last handed a message, or None.
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
        """The TakeRate of the consumers."""
        if self.take_rate is None:  # most rings need no rate
            self.take_rate = TakeRate()
        return self.take_rate

    def add(self, consumer):
        """Attach a consumer; it becomes ready at once if it may."""
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
        """Put a consumer that may have capacity again at the end of its ring, unless it is in the ring."""
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
        """The consumer that take_next() would return; it stays in the ring. None if the ring is empty."""
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
        """Move a consumer that had its turn while in the ring behind others of its priority."""
        if consumer.ringed:
            self._unring(consumer)
        self.offer(consumer)

    def ready_at_top(self):
        """Count of ready consumers of the highest ready priority."""
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
    """The interface of a queue's limits (broker.queues.limits), without effect. A queue without limits has no
    guard; each call costs it one comparison with None.
    """

    __slots__ = ()

    def admits(self, message):
        """Before a message is stored: answers REFUSED, ADMITTED or DUPLICATE."""
        return ADMITTED

    def appended(self):
        """A message was stored."""

    def asked(self):
        """basic.get is about to look at the head, and no consumer is ready."""

    def peek(self, message):
        """Fill ``message`` with the next deliverable message, as Queue.peek does."""
        return False

    def settle(self):
        """The queue's turn is over."""

    def returned(self, location, how):
        """An unacked message comes back (LOST, RETURNED, FAILED). True: the limits took it, no requeue."""
        return False

    def came_back(self):
        """An unacked message is ready again."""

    def rejected(self, location):
        """An unacked message was rejected without requeue."""

    def used(self):
        """The queue was used: by a get, a declare, or the end of a consumer."""

    def close(self):
        """The queue was deleted or closed."""
