"""Totals: the counters of deleted entities, kept so that the sums of a vhost or node never fall.

Entities are queues, exchanges, channels and connections. Each vhost has Totals, and the broker has Totals for
deleted vhosts. The code that deletes an entity adds its counters; the HTTP API and metrics read the totals.
"""
from gomq_py.observability.counters import Counters, counted

# Of a queue; ``delivered`` includes auto_delivered (without ack), got (basic.get) and auto_got (both).
QUEUE_COUNTERS = (
    "published", "delivered", "auto_delivered", "got", "auto_got", "got_none", "acked", "requeued"
)
EXCHANGE_COUNTERS = ("unroutable", "returned")
CHURN = ("queue_declared", "queue_created", "queue_deleted")
# Counters of channels: messages published, messages that asked for a confirm, confirmed ones.
CHANNEL_COUNTERS = ("publishes", "confirmable", "confirmed")
# ``dropped``: messages that no queue keeps for a client and that were not sent to it, because it does not
# read or does not accept them.
COUNTERS = (*EXCHANGE_COUNTERS, *CHURN, *CHANNEL_COUNTERS, "received_octets", "sent_octets", "dropped")


class Totals(Counters):
    """A counter for each name in COUNTERS, and ``queues``: {queue type: [sums of QUEUE_COUNTERS]}."""

    _fields_ = counted(*COUNTERS)

    def __init__(self):
        super().__init__()
        self.queues = {}

    def add_queue(self, queue):
        self._add_queues(queue.type, [getattr(queue, name) for name in QUEUE_COUNTERS])
        self.queue_deleted += 1

    def add_channel(self, channel):
        self.publishes += channel.publishes
        self.confirmable += channel.published
        self.confirmed += channel.confirmed_count

    def add_unkept(self, kind, delivered, dropped):
        """Add the counts of a closed connection. ``delivered``: messages sent to the client that no queue
        stored; they count for the queue type ``kind``. ``dropped``: such messages not sent.
        """
        if delivered:
            self._add_queues(kind, of_delivered(delivered))
        self.dropped += dropped

    def delivered(self, kind):
        """Return how many messages deleted queues of this type delivered, plus those of add_unkept()."""
        counters = self.queues.get(kind)
        return 0 if counters is None else counters[QUEUE_COUNTERS.index("delivered")]

    def add(self, gone, names):
        """Add the counters ``names`` of the deleted entity ``gone`` to the counters of the same names."""
        for name in names:
            setattr(self, name, getattr(self, name) + getattr(gone, name))

    def add_totals(self, gone):
        """Add all counters of ``gone``, the Totals of a deleted vhost."""
        self.add(gone, COUNTERS)
        for kind, counters in gone.queues.items():
            self._add_queues(kind, counters)

    def _add_queues(self, kind, counters):
        self.queues[kind] = [
            before + more for before, more in zip(self.queues.get(kind, (0,) * len(counters)), counters)
        ]


def of_delivered(count):
    """Return a list of QUEUE_COUNTERS for ``count`` messages delivered without acknowledgements."""
    return [count if name in ("delivered", "auto_delivered") else 0 for name in QUEUE_COUNTERS]
