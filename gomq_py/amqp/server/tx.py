"""Tx: what a transactional channel holds back until tx.commit: publishes, checked and routed already, and settlements.

Between the channel's handlers and what they would have done at once. To clients a commit is all or nothing; over a crash it is not, as in RabbitMQ.
The answer to a commit leaves when everything in it is on disk.
"""
from gomq_py.amqp.server import publish, settle
from gomq_py.amqp.wire.errors import ContentTooLarge, PreconditionFailed
from gomq_py.amqp.wire.methods import TxCommitOk, TxRollbackOk, TxSelectOk

# Octets of message bodies a transaction may hold in memory: as many as the default budget for unfinished bodies.
TRANSACTION_OCTETS_MAX = 256 * 1024 * 1024
# A message without a body costs about this much of it.
PUBLICATION_OCTETS = 1024


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
        """Carry it all out. False: some queue refused a message."""
        channel = self._channel
        settlements, publications = self._settlements, self._publications
        self.clear()
        queues = channel.unacked.queues() if settlements else ()
        for delivery_tag, multiple, how in settlements:
            settle.apply(channel, delivery_tag, multiple, how)
        for queue in queues:
            if queue.durable and not queue.closed:  # the commit-ok promises the acks too, which nobody else waits for
                queue.store.mark()
        taken = True
        for publication in publications:
            taken = publish.store(channel, publication) and taken
        return taken

    def _is_open(self, delivery_tag):
        return (
            delivery_tag > self._settled_through and delivery_tag not in self._settled and self._channel.unacked.is_outstanding(delivery_tag)
        )

    def _newest(self):
        """The last tag this transaction may still settle, or 0."""
        unacked = self._channel.unacked
        return max((entry[0] for entry in unacked.entries(unacked.count) if self._is_open(entry[0])), default=0)


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
    channel.reply_after_sync(TxCommitOk())


def tx_rollback(channel, _method):
    """tx.rollback: what was settled is unsettled again, what was published never was."""
    transaction_of(channel).clear()
    channel.reply(TxRollbackOk())


def transaction_of(channel):
    """The channel's transaction. Raises PreconditionFailed where there is none."""
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
