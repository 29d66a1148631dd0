"""Route: the destinations of one (exchange, routing key), valid until the exchange or the publisher's
permission changes.

Made by the broker for a publisher, cached by its fast lane (remembered). It is used without looking at
bindings, so it exists only for exchanges that route by the key alone, or by one header besides, or by whether
a message is delayed.
"""


class Route:
    """Resolved ``queues`` (Destinations, each once) and the revisions they were resolved at.

    ``permission``: an ExchangeState whose revision changes with the publisher's rights, or None. ``watched``:
    a header's name as a short string: the route holds for messages with the same list there (or none); empty
    if headers do not matter. ``delayed``: the Route of delayed messages, or None.
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
        """Count a message that all queues have had. Returns the number of queues."""
        count = len(self.queues)
        self.exchange.publish_in += 1
        if count:
            self.exchange.publish_out += count
        else:
            self.exchange.unroutable += 1
        return count
