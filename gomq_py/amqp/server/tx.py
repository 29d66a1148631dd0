"""Tx: keeps the publishes (checked and routed) and settlements of a transactional channel until tx.commit.

To clients a commit is all or nothing; in a crash it is not, as in RabbitMQ. A commit stores its messages
first, and settles deliveries once the messages are on disk. So a client that consumes a message and publishes
a result in one transaction cannot lose both. Commit-ok leaves when all is on disk.
"""
from array import array
from collections import deque

from gomq_py.amqp.server import publish
from gomq_py.amqp.server.settling import held_back, release
from gomq_py.amqp.wire.errors import ContentTooLarge, PreconditionFailed
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import TxCommit, TxCommitOk, TxRollbackOk, TxSelectOk
from gomq_py.broker.features.retry import ACK, LOST, REJECT, RETURNED
from gomq_py.broker.verbs.pending_confirms import NOT_KEPT
from gomq_py.hub.scheduler import Job, SliceClock

# Octets of message bodies a transaction may hold in memory: as many as the default budget for unfinished
# bodies.
TRANSACTION_OCTETS_MAX = 256 * 1024 * 1024
# Octets counted for a message besides its body: about what it costs.
PUBLICATION_OCTETS = 1024
# Messages taken from a channel between two looks at the clock: some 1 ms.
SLICE = 2_500
# Messages and settlements between two looks at the clock: some 0.1 ms.
LOOKS = 16
# Messages or settlements freed between two polls of the loop: some 2 ms.
DROPPED_AT_ONCE = 2_500


class Transaction:
    """The publishes and settlements of a channel in tx mode since its last commit or rollback."""

    __slots__ = ("_channel", "_publications", "_octets", "_settlements", "_settled", "_settled_through")

    def __init__(self, channel):
        self._channel = channel
        self._settled = set()
        self._settled_through = 0
        self._forget()

    def clear(self):
        """Drop all publishes and settlements, in slices if there are very many."""
        # To free 250,000 messages takes 0.2 s.
        for kept in (self._publications, self._settlements):
            drop(kept, self._channel.connection.scheduler)
        self._forget()

    def publish(self, publication):
        """Keep a publish for the commit. Raises ContentTooLarge if the transaction takes too much memory."""
        self._octets += PUBLICATION_OCTETS + publication.message.get_body_length()
        if self._octets > TRANSACTION_OCTETS_MAX:
            raise ContentTooLarge(f"the transaction holds more than {TRANSACTION_OCTETS_MAX} bytes")
        self._publications.append(publication)

    def settle(self, delivery_tag, multiple, how):
        """Keep a settlement for the commit. Returns False if the tag is unknown or already settled."""
        if multiple and delivery_tag == 0:
            # Up to the newest delivery, even if it is settled: finding the newest open one would mean a
            # search of all deliveries for each such frame.
            delivery_tag = self._channel.unacked.next_tag - 1
            if delivery_tag <= self._settled_through:
                return True
        elif not self._is_open(delivery_tag):
            return False
        self._settlements.append((delivery_tag, multiple, how))
        if multiple:
            self._settled_through = max(self._settled_through, delivery_tag)
        else:
            self._settled.add(delivery_tag)
        return True

    def requeue_unsettled(self, then=None):
        """Requeue the unacked messages that this transaction does not settle, then call ``then()``."""
        channel = self._channel
        unacked, newest, tag = channel.unacked, channel.unacked.next_tag - 1, 0
        queues = held_back(channel)
        for queue in queues:
            queue.hold_deliveries()  # later messages must not overtake the requeued ones

        def step():
            nonlocal tag
            clock = SliceClock(every=LOOKS)
            while tag < newest:
                tag = unacked.next_outstanding(tag)
                if tag == 0 or tag > newest:
                    break
                if self._is_open(tag):
                    unacked.reject(tag, False, RETURNED)
                if clock.is_over():
                    return True
            channel.resume_consumers()
            return False

        def done():
            release(queues)
            if then is not None and channel.is_open():
                then()

        channel.work_off(step, done, "what was unacked to go back")

    def commit(self):
        """Store the messages, settle the deliveries, and send commit-ok when all is on disk. Raises
        PreconditionFailed if a queue refused a message; then nothing is settled.
        """
        commit = Commit(self._channel, self._publications, self._settlements)
        self._forget()
        self._channel.work_off(commit.step, None, "its commit to be carried out")

    def _forget(self):
        drop(self._settled, self._channel.connection.scheduler)
        self._publications = []
        self._octets = 0
        self._settlements = []
        self._settled = set()
        self._settled_through = 0

    def _is_open(self, delivery_tag):
        return (
            delivery_tag > self._settled_through and delivery_tag not in self._settled
            and self._channel.unacked.is_outstanding(delivery_tag)
        )


class Commit:
    """Carries out one commit to its end, even if the channel ends first. Stores the messages, and removes the
    deliveries to settle from the channel; until then the client is not read. Settles these deliveries once
    the messages are on disk, or requeues them if the disk fails.
    """

    __slots__ = (
        "_channel", "_scheduler", "_when_safe", "_publications", "_settlements", "_taken", "_durable",
        "_targets", "_place", "_how", "_parts", "_at", "_now_ms", "_queues",
    )

    def __init__(self, channel, publications, settlements):
        self._channel = channel
        self._scheduler = channel.connection.scheduler
        self._when_safe = channel.connection.durability.when_safe
        self._now_ms = self._scheduler.now_ms
        publications.reverse()  # each is taken from the end and freed when it is stored
        self._publications = publications
        self._settlements = settlements
        settlements.reverse()
        self._taken, self._durable = True, False
        self._targets = set()  # queues that got durable messages
        self._place = self._queues = None
        self._how = 0
        self._parts = deque()  # (how, queue, locations), in the order of the settlements
        self._at = 0

    def step(self):
        """Do a slice of work. Returns True while the client's next methods must wait. Raises
        PreconditionFailed if a queue refused a message.
        """
        clock = SliceClock(every=LOOKS)
        if self._place is None:
            if not self._publish(clock):
                return True
            if not self._taken:
                raise PreconditionFailed("partial tx completion", TxCommit.ID >> 16, TxCommit.ID & 0xFFFF)
            if not self._take(clock):
                return True
            self._channel.resume_consumers()
            self._place = self._channel.replies.keep_place(method_frame(self._channel.id, TxCommitOk()))
            if self._durable and self._parts:
                self._when_safe(self._published, self._is_lost)
                return False
            self._hold_queues()
        return self.settle_some(None, clock)

    def _publish(self, clock):
        channel = self._channel
        while self._publications:
            publication = self._publications.pop()
            publication.committed(channel.vhost, self._now_ms)
            self._taken = publish.store(channel, publication) and self._taken
            if publication.durable:
                self._durable = True
                self._targets.update(publication.awaited)
            if clock.is_over():
                return not self._publications
        return True

    def _take(self, clock):
        unacked = self._channel.unacked
        while self._settlements:
            delivery_tag, multiple, self._how = self._settlements[-1]
            if not multiple:
                unacked.take(delivery_tag, self._add)
            elif unacked.take_some(delivery_tag, self._add, SLICE):
                return False
            self._settlements.pop()
            if clock.is_over():
                return not self._settlements
        return True

    def _add(self, queue, location):
        if not self._parts or self._parts[-1][:2] != (self._how, queue):
            self._parts.append((self._how, queue, array("Q")))
        self._parts[-1][2].append(location)

    def _published(self, error):
        """Begin to settle after the flush of the messages. With an ``error``, the messages are lost, and
        the deliveries are requeued.
        """
        error = self._refusal(error)
        if error is not None:
            self._parts = deque((LOST, queue, locations) for _, queue, locations in self._parts)
        self._hold_queues()
        settlement = Settlement(self, error)
        if settlement.step():
            self._scheduler.start(settlement)

    def settle_some(self, error, clock):
        """Settle deliveries until ``clock.is_over()``. Returns False after the last. ``error``: why the disk
        lost the messages, for the client; or None.
        """
        if not self._settle(clock):
            return True
        self.settled(error)
        return False

    def _hold_queues(self):
        self._queues = {queue: None for _, queue, _ in self._parts}
        for queue in self._queues:
            queue.hold_deliveries()  # later messages must not overtake the requeued ones

    def _settle(self, clock):
        while self._parts:
            how, queue, locations = self._parts[0]
            while self._at < len(locations):
                location = locations[self._at]
                self._at += 1
                if how == ACK:
                    queue.ack(location)
                elif how == REJECT:
                    queue.reject(location, False)
                elif how == LOST:
                    queue.requeue(location)
                else:
                    queue.give_back(location, how)
                if clock.is_over():
                    return False
            self._parts.popleft()
            self._at = 0
        return True

    def settled(self, error):
        """Let the queues deliver, and send commit-ok when the settlements are on disk. With an ``error``,
        close the connection instead.
        """
        release(self._queues)
        replies, place = self._channel.replies, self._place
        if error is not None:
            replies.fill(place, error)
        else:
            mark(self._queues)
            self._when_safe(lambda error: replies.fill(place, self._refusal(error)), self._is_lost)

    def _is_lost(self):
        return any(queue.failed for queue in (*self._targets, *(self._queues or ())))

    def _refusal(self, error):
        return NOT_KEPT if error is None and self._is_lost() else error


class Settlement(Job):
    """Settles a commit's deliveries after its messages were flushed. ``error``: see settle_some()."""

    name = "settling what a transaction settles"

    def __init__(self, commit, error):
        super().__init__()
        self._commit = commit
        self._error = error

    def step(self):
        return self._commit.settle_some(self._error, SliceClock(every=LOOKS))

    def failed(self, error):
        """End the commit with ``error``, because a queue could not settle. Paused queues deliver again."""
        self._commit.settled(error)
        return False


class Freeing(Job):
    """Empties a large, unused list or set in slices; freeing it at once would block the event loop."""

    name = "freeing what a transaction held"

    def __init__(self, kept):
        super().__init__()
        self._kept = kept

    def step(self):
        for _ in range(min(DROPPED_AT_ONCE, len(self._kept))):
            self._kept.pop()
        return bool(self._kept)

    def failed(self, error):
        """Return False. The job then ends, and its remaining elements are freed with it."""
        return False


def drop(kept, scheduler):
    """Free a list or set, in slices if it is large. The caller must keep no reference to it."""
    if len(kept) > DROPPED_AT_ONCE:
        scheduler.start(Freeing(kept))


def mark(queues):
    """Have the next flush write the acks in these queues to disk."""
    # Only commit-ok promises this to the client.
    for queue in queues:
        if queue.durable and not queue.closed:
            queue.store.mark()


def tx_select(channel, _method):
    """tx.select: keep later publishes and settlements for tx.commit. Does nothing in tx mode."""
    if channel.confirming:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction(channel)
        channel.choose_lane()
    channel.reply(TxSelectOk())


def tx_commit(channel, _method):
    """tx.commit: carry out the transaction. If a queue refuses a message, closes the channel with error 406
    (PRECONDITION_FAILED, "partial tx completion"), as RabbitMQ does.
    """
    transaction_of(channel).commit()


def tx_rollback(channel, _method):
    """tx.rollback: drop the transaction's publishes and settlements."""
    transaction_of(channel).clear()
    channel.reply(TxRollbackOk())


def transaction_of(channel):
    """Return the channel's Transaction. Raises PreconditionFailed if the channel is not in tx mode."""
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
