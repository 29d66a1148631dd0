"""Settling: settlements of more messages than others should wait for, in slices, one for each poll of the loop.

Between a channel and its unacked ring. Each channel has at most one, which carries out its orders in turn, to the end, whatever becomes of the
channel meanwhile. That later methods of the client find them carried out is the channel's business. Never switches.
"""
from collections import deque

from gomq_py.amqp.server.settle import ACK, DROP
from gomq_py.observability.log import logger

LOG = logger("amqp")

# Settled between two polls of the loop: some 2 ms, of acks and of what costs more.
ACKS_AT_ONCE = 10_000
AT_ONCE = 2_500


class Settling:
    """The orders of one channel, each up to a delivery tag."""

    def __init__(self, channel, scheduler):
        self._channel = channel
        self._scheduler = scheduler
        self._orders = deque()  # (tag, how, queues that deliver nothing until then, done)

    def order(self, tag, how, done=None):
        """Settle everything up to ``tag``; ``how`` as in settle. Returns whether some of it is left for later; then ``done()`` is called in the end.

        The queues that messages go back to deliver nothing meanwhile, so that later ones do not overtake.
        """
        if not self._orders and not self._settle_some(tag, how):
            return False
        queues = () if how in (ACK, DROP) else self._channel.unacked.queues()
        for queue in queues:
            queue.hold()
        self._orders.append((tag, how, queues, done))
        if len(self._orders) == 1:
            self._scheduler.run_sliced(self._slice)
        return True

    def _slice(self):
        tag, how, queues, done = self._orders[0]
        try:
            if self._settle_some(tag, how):
                return True
        except Exception:
            LOG.exception("channel %d: not everything up to delivery tag %d was settled", self._channel.id, tag)
        self._orders.popleft()
        for queue in queues:
            queue.release()
        if done is not None:
            done()
        return bool(self._orders)

    def _settle_some(self, tag, how):
        """Whether any are left."""
        left = self._channel.unacked.settle_some(tag, how, ACKS_AT_ONCE if how == ACK else AT_ONCE)
        self._channel.resume_consumers()
        return left
