"""Redistribution: sends a deleted queue's messages to other destinations.

The queue factory calls Redistributions.give(), and removes the queue's files at the end. The function that
Queue.redistribution() returns chooses each message's destination. Messages without a destination are dropped.
Each queue has a Transfer, which works in slices. If the broker is killed before the end, the remaining
messages are lost, because the deletion is in the log already.
"""
from gomq_py.broker.transfer.engine import ALL_WAIT, NOTHING_TO_DROP, Source, Target, Transfer
from gomq_py.broker.transfer.moves import copied
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("queue")
QUIET = QuietLog(LOG)


class Redistributions:
    """Runs the redistributions of one broker."""

    def __init__(self, scheduler, timers, when_safe):
        self._others = scheduler, timers, when_safe
        self._when_safe = when_safe
        self._transfers = {}  # Redistribution: gone() of its give()

    def give(self, queue, target_of, gone):
        """Send each ready message of a deleted queue to the Destination that ``target_of(message)`` returns.
        None drops the message. Calls ``gone()`` once all copies are on disk, or the broker stops.
        """
        redistribution = Redistribution(queue, self._over)
        redistribution.transfer = Transfer(
            "messages of deleted queues", redistribution, RedistributionTargets(queue, target_of),
            *self._others)
        self._transfers[redistribution] = gone
        redistribution.transfer.start()

    def close(self):
        """End all redistributions at the broker's stop, after sending all messages that can go at once."""
        for redistribution in list(self._transfers):
            transfer = redistribution.transfer
            while not redistribution.is_over and transfer.step():
                pass
            transfer.close()
            self._end(redistribution)

    def _over(self, redistribution):
        if redistribution in self._transfers:
            self._when_safe(lambda _error: self._end(redistribution))

    def _end(self, redistribution):
        gone = self._transfers.pop(redistribution, None)
        redistribution.transfer = None  # breaks a reference cycle
        if gone is not None:
            try:
                gone()
            except Exception:
                LOG.exception("queue %r was deleted, but not all of it has gone", redistribution.queue.name)


class Redistribution(Source):
    """Source of one deleted queue's messages. ``is_over``: True if no message is left, or after a fault."""

    __slots__ = ("queue", "transfer", "is_over", "_ended")

    def __init__(self, queue, ended):
        self.queue = queue
        self.transfer = None
        self.is_over = False
        self._ended = ended

    def take(self, message):
        store = self.queue.store
        if not self.is_over and store.peek(message):
            return message.describe()["location"]
        if not self.is_over and store.is_waiting():
            self.transfer.try_again_later()
        else:
            self.is_over = True
        return None

    def show(self, item, message):
        return True

    def no_room(self, item, pending):
        return ALL_WAIT

    def set_aside(self, item, error, was_sent):
        QUIET.error(
            self.queue.name, "a message of deleted queue '%s' in vhost '%s' goes to nobody: %s",
            self.queue.name, self.queue.vhost, error)
        self.queue.store.shift()

    def fail(self, item, error):
        LOG.error(
            "what deleted queue '%s' in vhost '%s' holds is not given to others: %s", self.queue.name,
            self.queue.vhost, error)
        self.is_over = True

    def broken(self, error):
        self.is_over = True
        return False

    def paused(self, unsafe):
        if self.is_over:
            self._ended(self)


class RedistributionTargets(Target):
    """Target that publishes the messages of one deleted queue to their new destinations."""

    __slots__ = ("_queue", "_target_of")

    def __init__(self, queue, target_of):
        self._queue = queue
        self._target_of = target_of

    def send(self, item, message):
        target = self._target_of(message)
        if target is not None:
            target.publish(copied(message, message.get_exchange(), message.get_routing_key()))
        self._queue.store.shift()
        return NOTHING_TO_DROP
