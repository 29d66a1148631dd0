"""Exchange state: the few numbers of an exchange that the fast lane reads and counts per message. Below
exchanges and route; knows neither.

``revision`` also guards other things a cached route depends on (a user's permissions carry one of these):
whoever changes what a route may answer adds one to it, and every cached route that saw the old number is
thrown away when it is next looked at.
"""


class ExchangeState:
    """``revision`` of what it routes, and counters: messages in, copies out, messages that matched nothing,
    and those of them that went back to their publisher.
    """

    __slots__ = ("revision", "publish_in", "publish_out", "unroutable", "returned")

    def __init__(self):
        self.revision = self.publish_in = self.publish_out = self.unroutable = self.returned = 0
