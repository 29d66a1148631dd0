"""Exchange state: the numbers of an exchange that the fast lane reads and counts per message. Below exchanges
and route.

``revision`` also guards other inputs of cached routes (a user's permissions have one): every change that may
affect a route increments it, and cached routes with the old number are dropped when next used.
"""


class ExchangeState:
    """``revision`` of its routes, and counters: messages in, copies out, unroutable messages, and those of
    them returned to their publisher.
    """

    __slots__ = ("revision", "publish_in", "publish_out", "unroutable", "returned")

    def __init__(self):
        self.revision = self.publish_in = self.publish_out = self.unroutable = self.returned = 0
