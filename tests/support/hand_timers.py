"""Timers and time of a node's model, in the hands of the test."""
from tests.support.queues import HandTimers


class NodeClock:
    """In place of the hub's timers for what vhosts keep: ``advance(ms)`` lets time pass at once.

    ``kinds``: those that the node is going to be made with.
    """

    def __init__(self, kinds, now_ms=1_700_000_000_000):
        self.now_ms = now_ms
        self.timers = HandTimers(self)
        kinds.on_vhost(self._vhost_made)

    def _vhost_made(self, vhost):
        vhost._factory.timers = self.timers

    def advance(self, ms):
        self.now_ms += ms
        self.timers.fire()
