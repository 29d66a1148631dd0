"""Exchange state: numbers of an exchange that the fast lane reads and counts per message. Below exchanges and
route.

``revision`` guards cached routes: every change that may affect a route increments it, and routes with an old
number are dropped when next used. A user's rights have an ExchangeState, too, but only as a revision counter
of this C type.
"""


class ExchangeState:
    """``revision`` of its routes, and counters: messages in, copies out, unroutable messages, and unroutable
    messages returned to their publisher.
    """

    __slots__ = ("revision", "publish_in", "publish_out", "unroutable", "returned")

    def __init__(self):
        self.revision = self.publish_in = self.publish_out = self.unroutable = self.returned = 0
