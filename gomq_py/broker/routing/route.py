"""Route: where one (exchange, routing key) leads, remembered until the exchange or the publisher's permission
changes.

Made by the broker for a publisher, kept by its fast lane (remembered). It answers without looking at bindings
again, so it is only made for exchanges that look at nothing but the routing key, or at one header besides,
or at whether the message is to wait.
"""


class Route:
    """Resolved ``queues`` (Destinations, each once) and the revisions they were resolved at.

    ``permission`` is any ExchangeState whose revision is bumped when the publisher's rights change, or None
    where nobody asks for rights. ``watched``: name of a header, as a short string: the route is that of
    messages with the list that they have there, or with none; empty where headers do not matter. ``delayed``:
    the Route of messages that an exchange delays, or None where none does.
    """

    __slots__ = (
        "queues", "exchange", "permission", "revision", "permission_revision", "durable", "routing",
        "watched", "delayed", "needs_headers",
    )

    def __init__(self, queues, exchange, permission=None, watched=b"", delayed=None):
        self.queues = tuple(queues)
        self.exchange = exchange
        self.revision = exchange.revision
        self.permission = permission
        self.permission_revision = 0 if permission is None else permission.revision
        self.durable = any(queue.durable for queue in self.queues)
        self.routing = b""
        self.watched = watched
        self.delayed = delayed
        self.needs_headers = bool(watched) or delayed is not None

    def is_current(self):
        """Whether nothing that this route was made from has changed."""
        if self.revision != self.exchange.revision:
            return False
        return self.permission is None or self.permission_revision == self.permission.revision

    def count(self):
        """All queues have had a message: the exchange counts it. Returns how many queues there are."""
        count = len(self.queues)
        self.exchange.publish_in += 1
        if count:
            self.exchange.publish_out += count
        else:
            self.exchange.unroutable += 1
        return count
