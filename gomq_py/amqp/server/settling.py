"""Settling: basic.ack, basic.nack and basic.reject that the fast lane leaves (rejections, unknown tags,
transactions), and very many messages settled in slices, one for each poll of the loop, so that others need
not wait.

Between a channel and its unacked ring, which tells the queues. The methods have no answer. Each channel has
at most one Settling, which carries out its orders one after the other, to the end, even if the channel ends
meanwhile. The channel lets no later method of the client overtake them. Never switches.
"""
from collections import deque

from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.broker.features.retry import FAILED, LOST, RETURNED
from gomq_py.hub.scheduler import Job
from gomq_py.observability.log import logger

LOG = logger("amqp")

# What becomes of a message; the numbers are those of unacked and of the queues.
ACK, REQUEUE, REJECT = 0, LOST, 8

# Settled between two polls of the loop: some 2 ms, of acks and of what costs more.
ACKS_AT_ONCE = 10_000
AT_ONCE = 2_500


def basic_ack(channel, method):
    """basic.ack.

    An unknown tag closes the channel; tag 0 with ``multiple`` means everything, even nothing.
    """
    settle(channel, method.delivery_tag, method.multiple, ACK)


def basic_nack(channel, method):
    """basic.nack: as basic.ack, but refused."""
    settle(channel, method.delivery_tag, method.multiple, RETURNED if method.requeue else REJECT)


def basic_reject(channel, method):
    """basic.reject: one refused."""
    settle(channel, method.delivery_tag, False, FAILED if method.requeue else REJECT)


def settle(channel, delivery_tag, multiple, how):
    """Settle now, or note it in the channel's transaction. Raises PreconditionFailed for an unknown tag."""
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
    """Whether an operator has given back the message with this tag, which its client cannot know. Then only
    the messages before it are settled, with ``multiple``.
    """
    if delivery_tag not in channel.returned or multiple and channel.transaction is not None:
        return False
    if multiple:
        channel.settle_many(delivery_tag, how)
    else:
        channel.returned.discard(delivery_tag)
    return True


def apply(channel, delivery_tag, multiple, how):
    """Settle for good. False: the tag is unknown, and nothing was done."""
    if how == ACK:
        return channel.ack(delivery_tag, multiple)
    return channel.reject(delivery_tag, multiple, 0 if how == REJECT else how)


class Settling(Job):
    """The orders of one channel: up to a delivery tag, or whatever a transaction does to what is unacked."""

    name = "settlements of a channel"

    def __init__(self, channel, scheduler):
        super().__init__()
        self._channel = channel
        self._scheduler = scheduler
        self._orders = deque()  # (step, done, failed)

    def order(self, tag, how, done=None):
        """Settle everything up to ``tag``; ``how`` as in settle.

        Returns whether some of it is left for later; then ``done()`` is called in the end.

        The queues that messages go back to deliver nothing meanwhile, so that later ones do not overtake.
        """
        queues = () if how in (ACK, REJECT) else held_back(self._channel)
        for queue in queues:
            queue.hold()

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
        """Call ``step()``, behind the orders before it, until it returns False.

        Returns whether some of it is left for later.

        Then ``done()`` is called in the end, after ``failed(error)`` if a step raised. What the first step
        raises now is raised.
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
        except Exception:  # the orders behind it must be carried out all the same
            LOG.exception("channel %d: the end of a settlement cannot be told", self._channel.id)

    def failed(self, error):
        """Go on: no order failed, those tell their own failures."""
        return bool(self._orders)

    def _settle_some(self, tag, how):
        """Settle a slice. Returns whether messages are left."""
        left = self._channel.unacked.settle_some(tag, how, ACKS_AT_ONCE if how == ACK else AT_ONCE)
        self._channel.resume_consumers()
        return left


def held_back(channel):
    """The queues that deliver nothing until messages of a channel have gone back and the client has its
    answer, as keys of a dict: also the queues of its consumers, which have credit again before recover-ok.
    """
    queues = channel.unacked.queues()
    for consumer in channel.consumers.values():
        if consumer.queue is not None:
            queues[consumer.queue] = None
    return queues


def release(queues):
    """They deliver again."""
    for queue in queues:
        queue.release()
