"""Hot channel: the part of a channel that the fast lane and deliveries touch per message.

The channel of the AMQP door is a plain subclass.

Holds the confirm counter, the unacked ring and the credit of the channel's consumers; knows nothing of
methods and replies. Never yields.
"""
from gomq_py.amqp.server.settling import REQUEUE, Settling
from gomq_py.amqp.server.unacked import Unacked
# its .pxd types what resume_consumers walks
from gomq_py.broker.queues import consumers as _consumers  # noqa: F401
from gomq_py.broker.verbs.pending_confirms import UnsyncedQueues

# A ``global_prefetch`` that leaves room for no message, acks or not.
NO_CREDIT = -1


class HotChannel:
    """``slow``: the fast lane hands every frame of this channel to slow_frame (tx mode, content under way,
    closing).

    ``confirming``: confirm mode; ``published`` is then the number of the last publish (``publishes`` counts
    in every mode), ``refused`` those to be nacked since the last confirms, ``unsynced`` the queues of those
    that must be on disk first, and ``confirms`` the Confirms that answers them all. ``prefetch_count`` is
    what new consumers get, ``global_prefetch`` the limit all consumers of the channel share; 0 is no limit.
    ``consumers`` maps tags to consumers. ``max_unacked``: beyond it nothing is delivered that wants an ack.
    ``watched``: somebody looks whether it holds deliveries for too long (consumer_timeouts). ``tracing``:
    every delivery is told to trace_delivery().
    """

    __slots__ = (
        "id", "slow", "confirming", "unsynced", "published", "publishes", "refused", "unacked",
        "prefetch_count", "global_prefetch", "max_unacked", "consumers", "confirms", "in_confirming",
        "in_settled", "watched", "tracing", "resume_at", "settling",
    )

    def __init__(self, id_):
        self.id = id_
        self.unsynced = UnsyncedQueues()
        self.slow = self.confirming = self.in_confirming = self.in_settled = False
        self.watched = self.tracing = False
        self.published = self.publishes = 0
        self.refused = []
        self.confirms = None
        self.unacked = Unacked()
        self.prefetch_count = self.global_prefetch = self.resume_at = 0
        self.max_unacked = 1 << 62
        self.consumers = {}
        self.settling = None

    def send_confirms(self):
        """Answer the publishes since the last call: at the end of a read, and before the channel closes."""
        if self.confirming:
            refused = self.refused
            if refused:
                self.refused = []
            self.confirms.published(self.published, refused, self.unsynced.take())

    def ack(self, tag, multiple):
        """basic.ack. False: the tag is unknown, and nothing was done."""
        if not self.unacked.settle(tag, multiple):
            return False
        self.resume_consumers()
        return True

    def reject(self, tag, multiple, requeue):
        """basic.reject and basic.nack; ``requeue`` as in unacked.

        False: the tag is unknown, and nothing was done.
        """
        if not self.unacked.reject(tag, multiple, requeue):
            return False
        self.resume_consumers()
        return True

    def settle_in_slices(self, tag, how, scheduler, done=None):
        """Settle everything up to ``tag``.

        Returns whether some of it is left for later; ``done()`` is called when that is settled, too.
        """
        return self.settlements(scheduler).order(tag, how, done)

    def settlements(self, scheduler):
        """The Settling that carries out, in slices and in order, what was asked for."""
        if self.settling is None:
            self.settling = Settling(self, scheduler)
        return self.settling

    def lend_nothing(self):
        """The channel is about to go: from now on none of its consumers takes anything."""
        self.slow = True
        self.global_prefetch = NO_CREDIT

    def close(self, scheduler):
        """The channel is gone: its consumers detach and what it holds unacked goes back to its queues, in
        order, very much of it in slices.
        """
        self.slow = True
        for consumer in list(self.consumers.values()):
            consumer.stop()
        self.consumers.clear()
        if self.unacked.count or self.settling is not None:
            self.settle_in_slices(self.unacked.next_tag - 1, REQUEUE, scheduler)
        self.settling = None  # what is left of it holds the channel until it is done

    def watch_unacked(self):
        """Something subject to a consumer timeout was delivered and the channel is not watched yet."""

    def trace_delivery(self, message, queue_name, added):
        """A message is about to be delivered while ``tracing``."""

    def resume_consumers(self):
        """Credit came back (acks, qos): consumers that have some again queue up for their turn."""
        if self.global_prefetch and len(self.consumers) > 1:
            self._resume_in_turns()
            return
        for consumer in self.consumers.values():
            if not consumer.ringed and consumer.queue is not None:
                consumer.queue.offer(consumer)

    def _resume_in_turns(self):
        """As ``resume_consumers``, where all consumers share one credit: each time another consumer comes
        first, because the first may use the credit up.
        """
        consumers = list(self.consumers.values())
        first = self.resume_at % len(consumers)
        consumers = consumers[first:] + consumers[:first]
        for consumer in consumers:
            if not consumer.ringed and consumer.queue is not None:
                consumer.queue.offer(consumer)
        for at, consumer in enumerate(consumers):
            if consumer.ringed and consumer.queue.ready_count:
                self.resume_at = first + at + 1
                consumer.queue.serve()  # or the queue of the consumer that has just acked comes first, always
                return
