"""Large output: one budget for large messages that have been delivered but not read,
over all connections of a hub.

Beside delivery, which asks before it copies a message that is larger than the hub's output buffer, or has it
sent from its file. Such a copy, or file, stays with its connection until the socket has taken it; a hundred
consumers that read nothing would hold a hundred of them. Beyond the limit consumers wait for each other, and
whoever reads nothing while others wait is given up. Without a copy under way one is always admitted, whatever
its size. Never holds a message itself.
"""
import gevent

from gomq_py.hub.budget import STALLED_S, Budget


class LargeOutput(Budget):
    """A consumer has ``output``, ``resume_held()`` and ``give_up(why)``; all calls are in the hub."""

    def __init__(self, limit, stalled_s=STALLED_S, call_later=gevent.spawn_later):
        super().__init__(limit, stalled_s, call_later)
        self._holders = {}  # consumer: (octets, what its output had sent at the last look)

    def admit(self, consumer, octets):
        """Whether a copy of ``octets`` may be made now. If not, ``consumer.resume_held()`` is called once
        it may.
        """
        if not self._holders or self.held + octets <= self.limit:
            return True
        self._wait(consumer)
        return False

    def written(self, consumer, octets):
        """A copy went to the consumer's output, which has not sent all of it."""
        self._holders[consumer] = (octets, consumer.output.sent_octets)
        self.held += octets
        consumer.output.call_when_drained(lambda: self._drained(consumer))

    def _drained(self, consumer):
        octets, _ = self._holders.pop(consumer)
        self.held -= octets
        waiting, self._waiting = self._waiting, []
        self._resume(waiting)

    def _note_progress(self):
        for consumer, (octets, _) in self._holders.items():
            self._holders[consumer] = octets, consumer.output.sent_octets

    def _give_up_stalled(self):
        for consumer, (octets, sent) in list(self._holders.items()):
            if consumer.output.sent_octets == sent:
                self._give_up(
                    consumer,
                    f"the client has read nothing of a message of {octets} octets for {self._stalled_s} s "
                    "while others wait for memory",
                )
