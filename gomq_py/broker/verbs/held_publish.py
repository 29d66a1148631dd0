"""Held publish: a message for which a thread makes the files of a new segment first.

Between publishing, which meets a queue that answers LATER, and the queue's store, which has the files made.
So the disk holds up the publisher that needs it, and not the hub. A door lets nothing of the same client
overtake it.
"""
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing.destination import LATER
from gomq_py.hub.scheduler import unix_ms

WAITS_FOR = "files for the next segment of a queue"


def wait_for_files(hub, stream, vhost, message, destinations, taken, done, before=None):
    """The client of ``stream`` is not read until the message is stored, and its octets count among those of
    unfinished bodies. For the rest as HeldPublish.
    """
    hold = stream.hold(getattr(message.lacking, "waits_for", WAITS_FOR))
    octets = message.get_body_length()
    hub.bodies.count_whole(octets)

    def stored(taken, somebody_took):
        hub.bodies.count_whole(-octets)
        hold.release()
        done(taken, somebody_took)

    HeldPublish(vhost, hub.scheduler, message, destinations, taken, stored, before)


class HeldPublish:
    """``message``, which owns its octets, has still to be given to ``destinations``, the first of which
    answered LATER.

    ``taken``: whether the destinations before these took it. ``done(taken, somebody_took)`` is called when
    all have had it: whether all of them took it, and whether one of ``destinations`` did. It goes on to its
    end even if its client has gone. ``before(destinations, None, taken)`` is called whenever they are tried,
    and ``before(destinations, those left, taken)`` when the first of those left has answered LATER again.
    """

    def __init__(self, vhost, scheduler, message, destinations, taken, done, before=None):
        self._vhost = vhost
        self._scheduler = scheduler
        self._message = message
        self._destinations = destinations
        self._taken = taken
        self._somebody_took = False
        self._done = done
        self._before = before
        message.lacking(self._go_on)

    def _go_on(self, error):
        """The files are there, or could not be made: then the queue refuses it, and the others have it still.

        Never raises.
        """
        now_ms = unix_ms()
        # or one that is to be delivered at once or never would have waited for too long
        self._message.restamp(now_ms)
        self._scheduler.begin(now_ms)
        try:
            is_over = self._publish(error)
        finally:
            self._scheduler.finish()
        if is_over:
            self._done(self._taken, self._somebody_took)

    def _publish(self, error):
        """Whether all have had it. ``error``: why the first cannot."""
        if self._before is not None:
            self._before(tuple(self._destinations), None, self._taken)
        for at, destination in enumerate(self._destinations):
            if (
                isinstance(destination, Queue)
                and (now := self._vhost.queues.get(destination.name)) is not destination
            ):
                # One that was deleted meanwhile has had it, also where there is another of its name.
                if now is not None and now.store.key == destination.store.key:
                    self._taken = False  # opened again: whoever publishes may try again
                continue
            if error is not None and at == 0:
                destination.not_stored(error)
                self._taken = False
                continue
            answer = destination.publish(self._message)
            if answer == LATER:
                tried, self._destinations = self._destinations, self._destinations[at:]
                if self._before is not None:
                    self._before(tuple(tried), tuple(self._destinations), self._taken)
                self._message.lacking(self._go_on)
                return False
            if answer:
                self._somebody_took = True
            else:
                self._taken = False
        return True
