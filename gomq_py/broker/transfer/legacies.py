"""Legacies: redistribution of a deleted queue's messages to other destinations (heirs).

Between the queue factory, which removes the queue's files afterwards, and the heirs: the deleted queue's
``legacy()`` returns a function that names the heir of each message. A Transfer in slices per queue. Messages
without an heir are dropped with the queue; a kill in between drops the rest, because the deletion is in the
log already.
"""
from gomq_py.broker.transfer.engine import ALL_WAIT, NOTHING_TO_DROP, Source, Target, Transfer
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.message import Message

LOG = logger("queue")
QUIET = QuietLog(LOG)


class Legacies:
    """The redistributions at work in one broker."""

    def __init__(self, scheduler, timers, when_safe):
        self._others = scheduler, timers, when_safe
        self._when_safe = when_safe
        self._transfers = {}  # Legacy: (its Transfer, gone())

    def give(self, queue, heir_of, gone):
        """Give the ready messages of a retired queue to ``heir_of(message)``, a Destination or None; then
        call ``gone()``, once the copies are on disk.
        """
        legacy = Legacy(queue, self._over)
        transfer = legacy.transfer = Transfer(
            "messages of deleted queues", legacy, Heirs(queue, heir_of), *self._others)
        self._transfers[legacy] = transfer, gone
        transfer.start()

    def close(self):
        """The broker stops: complete redistributions, as far as files are open for them."""
        for legacy, (transfer, _) in list(self._transfers.items()):
            while not legacy.is_over and transfer.step():
                pass
            transfer.close()
            self._end(legacy)

    def _over(self, legacy):
        if legacy in self._transfers:
            self._when_safe(lambda _error: self._end(legacy))

    def _end(self, legacy):
        _, gone = self._transfers.pop(legacy, (None, None))
        legacy.transfer = None  # breaks a reference cycle
        if gone is not None:
            try:
                gone()
            except Exception:
                LOG.exception("queue %r was deleted, but not all of it has gone", legacy.queue.name)


class Legacy(Source):
    """The messages of one deleted queue. ``is_over``: there are no more."""

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


class Heirs(Target):
    """The heirs of one queue's messages."""

    __slots__ = ("_queue", "_heir_of")

    def __init__(self, queue, heir_of):
        self._queue = queue
        self._heir_of = heir_of

    def send(self, item, message):
        heir = self._heir_of(message)
        if heir is not None:
            about = message.describe()
            copy = Message()
            copy.assign(
                message.get_exchange(), message.get_routing_key(), message.get_raw(), message.get_body(),
                about["timestamp_ms"], about["expires_at_ms"], about["priority"], about["persistent"])
            copy.set_kind(about["kind"], about["flags"])
            heir.publish(copy)
        self._queue.store.shift()
        return NOTHING_TO_DROP
