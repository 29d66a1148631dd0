"""Tx: what a transactional channel holds back until tx.commit: publishes, checked and routed already, and settlements.

Between the channel's handlers and what they would have done at once. To clients a commit is all or nothing; over a crash it is not, as in RabbitMQ.
A commit stores its messages first, and settles only once they are on disk: whoever consumes, publishes the outcome and commits both is left with the
one or the other, or with both, after a power cut, and never with neither. The answer leaves when all of it is on disk.
"""
from array import array
from collections import deque

from gomq_py.amqp.server import publish, settle
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.errors import ContentTooLarge, PreconditionFailed
from gomq_py.amqp.wire.methods import TxCommitOk, TxRollbackOk, TxSelectOk

# Octets of message bodies a transaction may hold in memory: as many as the default budget for unfinished bodies.
TRANSACTION_OCTETS_MAX = 256 * 1024 * 1024
# A message without a body costs about this much of it.
PUBLICATION_OCTETS = 1024
# Settled without a poll of the loop between: some 2 ms.
SLICE = 2_500


class Transaction:
    """Publishes and settlements since the last commit or rollback, in their order."""

    __slots__ = ("_channel", "_publications", "_octets", "_settlements", "_settled", "_settled_through")

    def __init__(self, channel):
        self._channel = channel
        self.clear()

    def clear(self):
        """Forget everything."""
        self._publications = []
        self._octets = 0
        self._settlements = []
        self._settled = set()
        self._settled_through = 0

    def publish(self, publication):
        """Keep a publish. Raises ContentTooLarge."""
        self._octets += PUBLICATION_OCTETS + len(publication.body)
        if self._octets > TRANSACTION_OCTETS_MAX:
            raise ContentTooLarge(f"the transaction holds more than {TRANSACTION_OCTETS_MAX} octets")
        self._publications.append(publication)

    def settle(self, delivery_tag, multiple, how):
        """Keep a settlement. False: the tag is unknown, or was settled in this transaction already."""
        if multiple and delivery_tag == 0:
            delivery_tag = self._newest()
            if delivery_tag == 0:
                return True
        elif not self._is_open(delivery_tag):
            return False
        self._settlements.append((delivery_tag, multiple, how))
        if multiple:
            self._settled_through = max(self._settled_through, delivery_tag)
        else:
            self._settled.add(delivery_tag)
        return True

    def requeue_unsettled(self):
        """basic.recover: what is unacked goes back at once, except what this transaction may settle."""
        channel = self._channel
        for tag in [entry[0] for entry in channel.unacked.entries(channel.unacked.count) if self._is_open(entry[0])]:
            channel.reject(tag, False, True)

    def commit(self):
        """Carry it all out, and answer when it is on disk. False: some queue refused a message; then nothing is settled and nobody answered."""
        channel = self._channel
        settlements, publications = self._settlements, self._publications
        self.clear()
        taken, durable = True, False
        now_ms = channel.connection.scheduler.now_ms
        for publication in publications:
            publication.committed(channel.vhost, now_ms)
            taken = publish.store(channel, publication) and taken
            durable = durable or publication.durable
        if not taken:
            return False
        if durable and settlements:
            Move(channel, settlements).begin()
            return True
        queues = channel.unacked.queues() if settlements else ()
        for delivery_tag, multiple, how in settlements:
            settle.apply(channel, delivery_tag, multiple, how)
        mark(queues)
        channel.reply_after_sync(TxCommitOk())
        return True

    def _is_open(self, delivery_tag):
        return (
            delivery_tag > self._settled_through and delivery_tag not in self._settled and self._channel.unacked.is_outstanding(delivery_tag)
        )

    def _newest(self):
        """The last tag this transaction may still settle, or 0."""
        unacked = self._channel.unacked
        return max((entry[0] for entry in unacked.entries(unacked.count) if self._is_open(entry[0])), default=0)


class Move:
    """The settlements of a commit that also published: they wait until its messages are on disk.

    They are no longer the channel's, which may go meanwhile: a commit that was read is carried out. If the disk refuses, the messages go back.
    """

    __slots__ = ("_channel", "_scheduler", "_after_sync", "_place", "_how", "_parts", "_at")

    def __init__(self, channel, settlements):
        self._channel = channel
        self._scheduler = channel.connection.scheduler
        self._after_sync = channel.connection.committer.after_sync
        self._parts = deque()  # (how, queue, locations), in the order of the settlements
        self._at = 0
        for delivery_tag, multiple, how in settlements:
            self._how = how
            channel.unacked.take(delivery_tag, multiple, self._add)
        channel.resume_consumers()
        self._place = channel.replies.keep_place(method_frame(channel.id, TxCommitOk()))

    def begin(self):
        """Wait for the messages, then settle, then wait for that."""
        self._after_sync(self._published)

    def _add(self, queue, location):
        if not self._parts or self._parts[-1][:2] != (self._how, queue):
            self._parts.append((self._how, queue, array("Q")))
        self._parts[-1][2].append(location)

    def _published(self, error):
        if error is not None:
            self._parts = deque((settle.REQUEUE, queue, locations) for _, queue, locations in self._parts)
        queues = {queue for _, queue, _ in self._parts}
        for queue in queues:
            queue.hold()  # what goes back must not be overtaken
        if self._settle_slice():
            self._scheduler.run_sliced(lambda: self._settle_slice() or self._settled(queues, error))
        else:
            self._settled(queues, error)

    def _settle_slice(self):
        """Settle some. False: those were the last."""
        left = SLICE
        while self._parts and left:
            how, queue, locations = self._parts[0]
            end = min(self._at + left, len(locations))
            left -= end - self._at
            for location in locations[self._at:end]:
                if how == settle.ACK:
                    queue.settle(location)
                elif how == settle.DROP:
                    queue.reject(location, False)
                elif how == settle.REQUEUE:
                    queue.requeue(location)
                else:
                    queue.give_back(location, how)
            self._at = end
            if end == len(locations):
                self._parts.popleft()
                self._at = 0
        return bool(self._parts)

    def _settled(self, queues, error):
        for queue in queues:
            queue.release()
        replies, place = self._channel.replies, self._place
        if error is not None:
            replies.fill(place, error)
            return False
        mark(queues)
        self._after_sync(lambda error: replies.fill(place, error))
        return False


def mark(queues):
    """What was settled in these queues is to be on disk by the next sync: the commit-ok promises the acks too, which nobody else waits for."""
    for queue in queues:
        if queue.durable and not queue.closed:
            queue.store.mark()


def tx_select(channel, _method):
    """tx.select: hold back from here on. A second time changes nothing."""
    if channel.confirming:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction(channel)
        channel.choose_lane()
    channel.reply(TxSelectOk())


def tx_commit(channel, _method):
    """tx.commit: 406 when a queue refused a message, which RabbitMQ calls a partial completion."""
    if not transaction_of(channel).commit():
        raise PreconditionFailed("partial tx completion")


def tx_rollback(channel, _method):
    """tx.rollback: what was settled is unsettled again, what was published never was."""
    transaction_of(channel).clear()
    channel.reply(TxRollbackOk())


def transaction_of(channel):
    """The channel's transaction. Raises PreconditionFailed where there is none."""
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
