"""Held publish: a message for which a thread makes the files of a new segment first. Its connection is not read until it is stored.

Between the lanes, which meet a queue that answers LATER, and the queue's store, which has the files made. So the disk holds up the publisher that
needs it, and not the hub. Order is kept: nothing of the same connection comes before it.
"""
from gomq_py.broker.destination import LATER
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.queues.scheduler import unix_ms

WAITS_FOR = "files for the next segment of a queue"


class HeldPublish:
    """``message``, which owns its octets, is still to be given to ``destinations``, the first of which has answered LATER; ``taken``: those before
    have taken it. ``done(taken)`` is called when all have had it. It goes on to its end though the connection ends.
    """

    def __init__(self, connection, message, destinations, taken, done):
        self._connection = connection
        self._scheduler = connection.scheduler
        self._vhost = connection.vhost
        self._message = message
        self._destinations = destinations
        self._taken = taken
        self._done = done
        self._hold = connection.stream.hold(WAITS_FOR)
        self._octets = message.get_body_length()
        connection.bodies.count_whole(self._octets)
        message.lacking(self._go_on)

    def _go_on(self, error):
        """The files are there, or could not be made: then the queue refuses it, and the others have it all the same. Never raises."""
        now_ms = unix_ms()
        self._message.restamp(now_ms)  # or one that is to be delivered at once or never would have waited for too long
        self._scheduler.begin(now_ms)
        try:
            is_over = self._publish(error)
        finally:
            self._scheduler.finish()
        if is_over:
            self._done(self._taken)
            self._connection.bodies.count_whole(-self._octets)
            self._hold.release()
            if self._connection.lane is not None:
                self._connection.batch_done()

    def _publish(self, error):
        """Whether all have had it. ``error``: why the first cannot."""
        for at, destination in enumerate(self._destinations):
            if isinstance(destination, Queue) and (now := self._vhost.queues.get(destination.name)) is not destination:
                if now is not None:  # restarted, or another of its name: whoever publishes may try again
                    self._taken = False
                continue
            if error is not None and at == 0:
                destination.not_stored(error)
                self._taken = False
                continue
            answer = destination.publish(self._message)
            if answer == LATER:
                self._destinations = self._destinations[at:]
                self._message.lacking(self._go_on)
                return False
            if not answer:
                self._taken = False
        return True
