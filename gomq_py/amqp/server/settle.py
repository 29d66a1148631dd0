"""Settle: basic.ack, basic.nack and basic.reject that the fast lane leaves: rejections, unknown tags,
transactions.

Above the channel's unacked ring, which tells the queues. Never answers: these methods have no -ok.
"""
from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.broker.features.retry import FAILED, LOST, RETURNED

# What becomes of a message; the numbers are those of unacked and of the queues.
ACK, REQUEUE, DROP = 0, LOST, 8


def basic_ack(channel, method):
    """basic.ack.

    An unknown tag closes the channel; tag 0 with ``multiple`` means everything, even nothing.
    """
    settle(channel, method.delivery_tag, method.multiple, ACK)


def basic_nack(channel, method):
    """basic.nack: as basic.ack, but refused."""
    settle(channel, method.delivery_tag, method.multiple, RETURNED if method.requeue else DROP)


def basic_reject(channel, method):
    """basic.reject: one refused."""
    settle(channel, method.delivery_tag, False, FAILED if method.requeue else DROP)


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
    """Whether an operator has given back what the tag is of, which its client cannot know: nothing is left
    to do, but for what came before it, where that is meant too.
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
    return channel.reject(delivery_tag, multiple, 0 if how == DROP else how)
