"""Fairness: how much the broker does for one connection between two polls of its loop, while others wait.

A client decides what it sends and what it asks for, and not how long others wait for it: of each connection
there is one read for each poll (net.stream), and deliveries to all of them are bounded until the next one
(hub.scheduler).
"""
READS = 2  # with the head of the next frame, behind the end of a large one
# BUDGET_OCTETS of hub.scheduler, and TURN_OCTETS of broker.queues.queue for one more turn.
SENT_OCTETS = (512 + 256) * 1024


class Share:
    """Of one connection of a process, called ``name``."""

    def __init__(self, process, name):
        self._process = process
        self._name = name
        self._poll = None
        self._reads = self._sent = 0

    def read(self):
        """Some octets were read from it."""
        self._begin()
        self._reads += 1
        if self._reads == READS + 1:
            self._process.world.find(f"{self._name} is read {self._reads} times without a poll between")

    def sent(self, count):
        """So many octets were written to it."""
        self._begin()
        if self._sent <= SENT_OCTETS < self._sent + count:
            self._process.world.find(
                f"{self._name} is sent {self._sent + count} octets without a poll between")
        self._sent += count

    def _begin(self):
        polls = self._process.hub.loop.polls
        if polls != self._poll:
            self._poll = polls
            self._reads = self._sent = 0
