"""Large output: one budget for large messages that have been delivered but not read, over all connections of a server.

Beside delivery, which asks before it copies a message that is larger than the hub's output buffer. Such a copy stays with its connection until the
socket has taken it; a hundred consumers that read nothing would hold a hundred of them. Beyond the limit consumers wait for each other, and whoever
reads nothing while others wait is closed. Without a copy under way one is always admitted, whatever its size. Never holds a message itself.
"""
import gevent

from gomq_py.observability.log import logger

LOG = logger("amqp")

# While others wait, some octet of a copy must be read at least this often; as bodies.STALLED_S.
STALLED_S = 30


class LargeOutput:
    """``limit`` in octets. A consumer has ``output``, ``channel`` and ``resume_large()``; all calls are in the hub."""

    def __init__(self, limit, stalled_s=STALLED_S, call_later=gevent.spawn_later):
        self.limit = limit
        self.held = 0
        self._stalled_s = stalled_s
        self._call_later = call_later
        self._holders = {}  # consumer: (octets, what its output had sent at the last look)
        self._waiting = []
        self._watch = None

    def admit(self, consumer, octets):
        """Whether a copy of ``octets`` may be made now; False: not before ``consumer.resume_large()`` is called."""
        if not self._holders or self.held + octets <= self.limit:
            return True
        self._waiting.append(consumer)
        if self._watch is None:
            self._look_at_all()
        return False

    def written(self, consumer, octets):
        """A copy went to the consumer's output, which has not sent all of it."""
        self._holders[consumer] = (octets, consumer.output.sent_octets)
        self.held += octets
        consumer.output.call_when_drained(lambda: self._drained(consumer))

    def close(self):
        """Stop watching."""
        if self._watch is not None:
            self._watch.kill(block=False)
            self._watch = None

    def _drained(self, consumer):
        octets, _ = self._holders.pop(consumer)
        self.held -= octets
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            try:
                one.resume_large()
            except Exception:  # the others wait for nobody but us
                LOG.exception("a consumer that waited for memory cannot go on")

    def _abort(self, consumer, octets):
        """The others have waited long enough."""
        try:
            consumer.channel.connection.abort(
                f"the client has read nothing of a message of {octets} octets for {self._stalled_s} s while others wait for memory")
        except Exception:
            LOG.exception("a connection that others wait for cannot be closed")

    def _look_at_all(self):
        for consumer, (octets, _) in self._holders.items():
            self._holders[consumer] = octets, consumer.output.sent_octets
        self._watch = self._call_later(self._stalled_s, self._look)

    def _look(self):
        self._watch = None
        if not self._waiting:
            return
        for consumer, (octets, sent) in list(self._holders.items()):
            if consumer.output.sent_octets == sent:
                self._abort(consumer, octets)
        if self._waiting and self._watch is None:
            self._look_at_all()
