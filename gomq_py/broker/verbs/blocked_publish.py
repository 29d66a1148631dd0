"""Blocked publish: a message that waits while a thread makes the files of a new segment.

Publishing makes a BlockedPublish when a queue answers LATER. So the disk holds up one publisher and not the
event loop. Protocol servers keep the client's later messages behind this message.
"""
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing.route import LATER
from gomq_py.hub.scheduler import unix_ms
from gomq_py.observability.log import logger

LOG = logger("broker")

WAITS_FOR = "files for the next segment of a queue"


def wait_for_files(hub, stream, vhost, publication, at, taken, done, before=None):
    """Make a BlockedPublish of these arguments. Until it ends, the client's ``stream`` is not read. The
    message's bytes count as an unfinished body.
    """
    message = publication.message
    hold = stream.pause_reading(getattr(message.lacking, "waits_for", WAITS_FOR))
    octets = message.get_body_length()
    hub.bodies.count_whole(octets)

    def stored(taken, somebody_took):
        hub.bodies.count_whole(-octets)
        hold.release()
        done(taken, somebody_took)

    BlockedPublish(vhost, hub.scheduler, publication, at, taken, stored, before)


class BlockedPublish:
    """Publishes a message to its remaining destinations, once the first of these has its files.

    ``at``: index of the first remaining destination. ``taken``: True if all destinations before it stored
    the message, which must own its bytes. A message whose queues were all deleted is routed again.

        done(taken, somebody_took)          called at the end, even if the client has gone. ``taken``: True
                                            if all destinations stored the message. ``somebody_took``: True
                                            if a remaining destination stored the message
        before(destinations, left, taken)   called before each attempt, with None as ``left``. Also called
                                            after a refusal (``left`` is empty) and after LATER (``left``:
                                            the destinations still to try)
    """

    def __init__(self, vhost, scheduler, publication, at, taken, done, before=None):
        self._vhost = vhost
        self._scheduler = scheduler
        self._publication = publication
        self._message = publication.message
        self._destinations = publication.destinations[at:]
        self._taken = taken
        self._somebody_took = False
        self._may_go_elsewhere = at == 0 and not publication.somebody_took
        self._done = done
        self._before = before
        vhost.blocked_publishes.add(self)
        self._message.lacking(self._go_on)

    def is_for(self, queue):
        """True if the message is still to be published to this queue."""
        return queue in self._destinations

    def _go_on(self, error):
        """Continue when the files are made, or could not be made (``error``). Never raises."""
        now_ms = unix_ms()
        # otherwise a message with a TTL of 0 would expire while it waits
        self._message.restamp(now_ms)
        self._scheduler.begin(now_ms)
        try:
            is_over = self._publish(error)
        except Exception:  # the client gets a refusal, and is not held for ever
            LOG.exception("a fault of the broker: not all queues have a message that waited for files")
            self._taken, is_over = False, True
        finally:
            self._scheduler.finish()
        if is_over:
            self._vhost.blocked_publishes.discard(self)
            self._done(self._taken, self._somebody_took)

    def _publish(self, error):
        """Publish to the remaining destinations. Returns False if one of them answers LATER, else True.
        ``error``: None, or why the first destination has no files. This destination then refuses.
        """
        destinations = self._still_there()
        if error is not None and destinations and destinations[0] is self._destinations[0]:
            destinations.pop(0).not_stored(error)
            self._taken = False
        if not (destinations or self._somebody_took) and self._taken and self._may_go_elsewhere:
            destinations = self._publication.rerouted(self._vhost)
        if self._before is not None:
            self._before(tuple(destinations), None, self._taken)
        for at, destination in enumerate(destinations):
            answer = destination.publish(self._message)
            if answer == LATER:
                self._destinations = destinations[at:]
                if self._before is not None:
                    self._before(tuple(destinations), tuple(self._destinations), self._taken)
                self._message.lacking(self._go_on)
                return False
            if answer:
                self._somebody_took = True
            else:
                self._taken = False
        if not self._taken and self._before is not None:
            self._before(tuple(destinations), (), False)
        return True

    def _still_there(self):
        # Without those declared anew, too.
        found = []
        for each in self._destinations:
            now = self._vhost.queues.get(each.name) if isinstance(each, Queue) else each
            if now is each:
                found.append(each)
            elif now is not None and now.store.key == each.store.key:
                self._taken = False  # reopened: refuse, the publisher may try again
        return found
