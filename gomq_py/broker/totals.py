"""Totals: what queues, channels and connections that are gone had counted, so that the sums shown of a vhost or a node never fall.

One per vhost, and one on the broker for deleted vhosts; whoever lets something go adds its counters here. Doors read.
"""
# Of a queue; ``delivered`` holds the others: auto_delivered without ack, got by basic.get, auto_got both.
QUEUE_COUNTERS = ("published", "delivered", "auto_delivered", "got", "auto_got", "got_none", "acked", "requeued")
EXCHANGE_COUNTERS = ("unroutable", "returned")
CHURN = ("queue_declared", "queue_created", "queue_deleted")
COUNTERS = (*QUEUE_COUNTERS, *EXCHANGE_COUNTERS, *CHURN, "confirmed", "received_octets", "sent_octets")


class Totals:
    """Counters by these names."""

    __slots__ = COUNTERS

    def __init__(self):
        self.published = self.delivered = self.auto_delivered = self.got = self.auto_got = self.got_none = self.acked = self.requeued = 0
        self.unroutable = self.returned = self.confirmed = self.received_octets = self.sent_octets = 0
        self.queue_declared = self.queue_created = self.queue_deleted = 0

    def add_queue(self, queue):
        """A queue is deleted."""
        self.add(queue, QUEUE_COUNTERS)
        self.queue_deleted += 1

    def add(self, gone, names):
        """Take over these counters of what is gone."""
        for name in names:
            setattr(self, name, getattr(self, name) + getattr(gone, name))
