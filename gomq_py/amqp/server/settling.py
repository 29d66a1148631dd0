"""Settling: handles the basic.ack, basic.nack and basic.reject methods that the fast lane does not handle
(rejections, unknown tags, transactions).

Very many messages are settled in slices, one per poll of the event loop. Each channel has at most one
Settling, which handles its requests one after another, to the end, even if the channel ends first. No
later method of the client overtakes a request. Never switches greenlets.
"""
from collections import deque

from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.broker.features.retry import ACK, FAILED, REJECT, RETURNED
from gomq_py.hub.scheduler import Job
from gomq_py.observability.log import logger

LOG = logger("amqp")

# Acks between two polls of the loop: some 2 ms. Other settlements, which cost more, get smaller slices.
ACKS_AT_ONCE = 10_000
AT_ONCE = 2_500


def basic_ack(channel, method):
    """basic.ack: settle the message with this tag or, if ``multiple`` is set, all messages up to it. An
    unknown tag closes the channel; tag 0 with ``multiple`` means all messages, even if there are none.
    """
    settle(channel, method.delivery_tag, method.multiple, ACK)


def basic_nack(channel, method):
    """basic.nack: requeue the message with this tag or, without ``requeue``, dead-letter or drop it. With
    ``multiple`` this applies to all messages up to the tag.
    """
    settle(channel, method.delivery_tag, method.multiple, RETURNED if method.requeue else REJECT)


def basic_reject(channel, method):
    """basic.reject: requeue one message or, without ``requeue``, dead-letter or drop it."""
    settle(channel, method.delivery_tag, False, FAILED if method.requeue else REJECT)


def settle(channel, delivery_tag, multiple, how):
    """Ack, reject or requeue messages, now or at tx.commit. Raises PreconditionFailed for an unknown tag.
    ``how``: ACK, REJECT, or a reason to requeue (features.retry).
    """
    if channel.transaction is not None:
        known = channel.transaction.settle(delivery_tag, multiple, how)
    elif multiple and channel.unacked.is_long(delivery_tag):
        known = delivery_tag == 0 or channel.unacked.is_outstanding(delivery_tag)
        if known:
            channel.settle_many(delivery_tag or channel.unacked.next_tag - 1, how)
    else:
        known = apply(channel, delivery_tag, multiple, how)
    if not known and not was_returned(channel, delivery_tag, multiple, how):
        raise PreconditionFailed(f"unknown delivery tag {delivery_tag}")


def was_returned(channel, delivery_tag, multiple, how):
    """Return True if an operator has requeued the message with this tag, so that its settlement is no error.
    With ``multiple``, settles all unacked messages up to this tag.
    """
    # In a transaction, a tag with ``multiple`` always returns False.
    if delivery_tag not in channel.returned or multiple and channel.transaction is not None:
        return False
    if multiple:
        channel.settle_many(delivery_tag, how)
    else:
        channel.returned.discard(delivery_tag)
    return True


def apply(channel, delivery_tag, multiple, how):
    """Ack, reject or requeue at once, not in tx mode. Returns False, without effect, for an unknown tag."""
    if how == ACK:
        return channel.ack(delivery_tag, multiple)
    return channel.reject(delivery_tag, multiple, 0 if how == REJECT else how)


class Settling(Job):
    """Settles very many messages of a channel in slices, request by request. Also carries out commits."""

    name = "settlements of a channel"

    def __init__(self, channel, scheduler):
        super().__init__()
        self._channel = channel
        self._scheduler = scheduler
        self._orders = deque()  # (step, done, failed)

    def order(self, tag, how, done=None):
        """Settle all messages up to ``tag``. Returns False if all are settled at return. Otherwise returns
        True, and calls ``done()`` later. ``how``: ACK, REJECT, or a reason to requeue.
        """
        # While messages are requeued, their queues deliver nothing: later messages would overtake them.
        queues = () if how in (ACK, REJECT) else held_back(self._channel)
        for queue in queues:
            queue.hold_deliveries()

        def over():
            release(queues)
            if done is not None:
                done()

        def failed(error):
            LOG.error(
                "channel %d: not everything up to delivery tag %d was settled", self._channel.id, tag,
                exc_info=error,
            )

        is_later = False
        try:
            is_later = bool(self._orders) or self._settle_some(tag, how)
        finally:
            if not is_later:
                release(queues)
        if is_later:
            self._begin(lambda: self._settle_some(tag, how), over, failed)
        return is_later

    def carry_out(self, step, done, failed):
        """Call ``step()`` until it returns False, after all earlier requests. Returns False if the first call
        was the last. Otherwise returns True, and calls ``done()`` at the end. If a later call raises, calls
        ``failed(error)``, then ``done()``.
        """
        if not self._orders and not step():
            return False
        self._begin(step, done, failed)
        return True

    def _begin(self, step, done, failed):
        self._orders.append((step, done, failed))
        self._scheduler.start(self)

    def step(self):
        step, done, failed = self._orders[0]
        try:
            if step():
                return True
        except Exception as error:
            self._tell(failed, error)
        self._orders.popleft()
        self._tell(done)
        return bool(self._orders)

    def _tell(self, callback, *arguments):
        try:
            callback(*arguments)
        except Exception:  # later orders must be carried out all the same
            LOG.exception("channel %d: the end of a settlement cannot be told", self._channel.id)

    def failed(self, error):
        """Return True, so that the job goes on, if requests are left after the failed one."""
        # The failed request itself reports its error.
        return bool(self._orders)

    def _settle_some(self, tag, how):
        left = self._channel.unacked.settle_some(tag, how, ACKS_AT_ONCE if how == ACK else AT_ONCE)
        self._channel.resume_consumers()
        return left


def held_back(channel):
    """Return, as a dict's keys, the queues that pause while the channel's unacked messages are requeued."""
    # The queues of these messages, and of the channel's consumers, which get credit before recover-ok is
    # sent.
    queues = channel.unacked.queues()
    for consumer in channel.consumers.values():
        if consumer.queue is not None:
            queues[consumer.queue] = None
    return queues


def release(queues):
    """Let the paused queues deliver."""
    for queue in queues:
        queue.resume_deliveries()
