"""Totals: counters of queues, channels and connections that are gone, so that the sums of a vhost or node
never fall.

Each vhost has one, and the broker one for deleted vhosts. Whatever deletes a thing adds its counters here.
Doors read.
"""
from gomq_py.broker.features.arguments import queue_type_of
from gomq_py.observability.counters import Counters, counted

# Of a queue; ``delivered`` holds the others: auto_delivered without ack, got by basic.get, auto_got both.
QUEUE_COUNTERS = (
    "published", "delivered", "auto_delivered", "got", "auto_got", "got_none", "acked", "requeued"
)
EXCHANGE_COUNTERS = ("unroutable", "returned")
CHURN = ("queue_declared", "queue_created", "queue_deleted")
# Of channels: messages they published, those of them that asked for a confirm, and what was confirmed.
CHANNEL_COUNTERS = ("publishes", "confirmable", "confirmed")
# Of clients: messages without a queue of theirs that they were not sent, because they do not read, or do not
# take them.
COUNTERS = (*EXCHANGE_COUNTERS, *CHURN, *CHANNEL_COUNTERS, "received_octets", "sent_octets", "dropped")


class Totals(Counters):
    """Counters by these names, and ``queues``: {type: [sums of QUEUE_COUNTERS]}."""

    _fields_ = counted(*COUNTERS)

    def __init__(self):
        super().__init__()
        self.queues = {}

    def add_queue(self, queue):
        """A queue is deleted."""
        self._add_queues(queue_type_of(queue.arguments), [getattr(queue, name) for name in QUEUE_COUNTERS])
        self.queue_deleted += 1

    def add_channel(self, channel):
        """A channel is closed."""
        self.publishes += channel.publishes
        self.confirmable += channel.published
        self.confirmed += channel.confirmed_count

    def add_unkept(self, kind, delivered, dropped):
        """A client is gone: what it was sent that no queue held counts for queues of this type."""
        if delivered:
            self._add_queues(kind, of_delivered(delivered))
        self.dropped += dropped

    def delivered(self, kind):
        """Messages that queues of this type delivered before they were gone, and what counts as such."""
        counters = self.queues.get(kind)
        return 0 if counters is None else counters[QUEUE_COUNTERS.index("delivered")]

    def add(self, gone, names):
        """Take over these counters of what is gone."""
        for name in names:
            setattr(self, name, getattr(self, name) + getattr(gone, name))

    def add_totals(self, gone):
        """Take over everything that a vhost had counted."""
        self.add(gone, COUNTERS)
        for kind, counters in gone.queues.items():
            self._add_queues(kind, counters)

    def _add_queues(self, kind, counters):
        self.queues[kind] = [
            before + more for before, more in zip(self.queues.get(kind, (0,) * len(counters)), counters)
        ]


def of_delivered(count):
    """QUEUE_COUNTERS of messages that were delivered without waiting for acknowledgements."""
    return [count if name in ("delivered", "auto_delivered") else 0 for name in QUEUE_COUNTERS]
