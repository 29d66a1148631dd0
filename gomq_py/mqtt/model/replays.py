"""Replays: send retained messages to sessions that have subscribed, filter after filter.

Copies go to the session's queue or its sink, like the subscription's other messages. They have RETAIN, the
subscription's identifier, and at most its QoS (flag REPLAYED of wire.crossing). A replay runs in slices, and
pauses while the queue has WINDOW messages. Never switches greenlets.
"""
from collections import OrderedDict

from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.mqtt.model.interests import identifier_property
from gomq_py.mqtt.model.key_index import TopicWalk
from gomq_py.mqtt.wire import crossing
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.message import Message

QUIET = QuietLog(logger("mqtt"))

# Most replayed messages that wait for a client: it takes them in some milliseconds.
WINDOW = 1000
# Delay before a slow client is looked at again: first and longest.
SOON_MS, LATER_MS = 10, 250


class Replay(Job):
    """Sends retained messages to one session. Call add() for each subscription."""

    name = "replaying retained MQTT messages"

    def __init__(self, retained, session):
        super().__init__()
        self._retained = retained
        self._session = session
        # topic filter: (Subscription, place of the last message before it)
        self._subscriptions = OrderedDict()
        self._walk = None  # the TopicWalk of the first filter
        self._timer = None
        self._pause_ms = SOON_MS
        self._message = Message()

    def add(self, subscription, last):
        """Send the retained messages of one more subscription, from the beginning. ``last``: arrival number
        (Retained.came_at()) of the last message stored before the client subscribed.
        """
        waiting, topic_filter = self._subscriptions, subscription.topic_filter
        if waiting and next(iter(waiting)) == topic_filter:
            self._walk = None
        waiting.pop(topic_filter, None)
        waiting[topic_filter] = subscription, last
        if self._timer is None:
            self._retained.vhost.scheduler.start(self)

    def end(self):
        self._subscriptions.clear()
        self._walk = None
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._retained.replayed(self._session)

    def step(self):
        clock = SliceClock(every=8)
        while self._subscriptions and not self._retained.closed:
            subscription, last = next(iter(self._subscriptions.values()))
            destination = self._destination(subscription)
            if destination is None:
                self._next()
                continue
            if self._walk is None and self._retained.waits.makes_wait(self, last):
                return False
            room = self._room(destination)
            if not room:
                self._wait()
                return False
            self._pause_ms = SOON_MS
            if self._some(subscription, last, destination, room, clock):
                self._next()
            if clock.is_over():
                return True
        self.end()
        return False

    def failed(self, error):
        self.end()
        return False

    def _next(self):
        self._subscriptions.popitem(last=False)
        self._walk = None

    def _some(self, subscription, last, destination, room, clock):
        """Replay up to ``room`` messages in a time slice. Returns True if no matching topic is left."""
        retained, message = self._retained, self._message
        walk = self._walk
        if walk is None:
            walk = self._walk = TopicWalk(retained.index, subscription.topic_filter)
        now_ms = retained.vhost.timers.now_ms()
        while room and not walk.is_over:
            found = walk.step()
            # Later messages reached the subscriber when they were published.
            if (
                found is not None and retained.came_at(found[1]) <= last
                and retained.show_current(found[1], message, now_ms)
            ):
                about = message.describe()
                if about["kind"] == crossing.KIND and crossing.is_block_of(message.get_raw()):
                    room -= self._publish(message, about, subscription, destination)
                else:
                    QUIET.error(
                        retained.name, "%s: the message for %r is malformed, and nobody gets it",
                        retained.name, found[0])
            if clock.is_over():
                break
        return walk.is_over

    def _publish(self, message, about, subscription, destination):
        """Send a copy to the destination. Returns 1, or 0 if No Local excludes the message [MQTT-3.8.3-3]."""
        properties, publisher = crossing.without_publisher(message.get_raw(), about["flags"])
        if subscription.no_local and publisher == self._session.client_id:
            return 0
        destination.publish(copy_for(message, about, properties, subscription))
        return 1

    def _destination(self, subscription):
        """Return the queue or other destination for this subscription; None if the subscription has ended."""
        session = self._session
        if session.subscriptions.get(subscription.topic_filter) != subscription:
            return None
        if session.queue is not None and (session.is_durable or subscription.qos or session.sink is None):
            return None if session.queue.closed else session.queue
        return session.sink

    @staticmethod
    def _room(destination):
        room = getattr(destination, "room", None)
        return max(0, WINDOW - destination.ready_count) if room is None else room()

    def go_on(self):
        """Resume after the client has connected, or after a message that waited for files is stored."""
        if self._timer is None and self._subscriptions:
            self._retained.vhost.scheduler.start(self)

    def _wait(self):
        """Pause for a while, because the client is slow. If the client is not connected, wait for go_on()."""
        # The replay to an absent client resumes when it connects.
        if self._session.connection is None:
            return
        self._timer = self._retained.vhost.timers.start(self._pause_ms, self._go_on)
        self._pause_ms = min(2 * self._pause_ms, LATER_MS)

    def _go_on(self):
        self._timer = None
        self._retained.vhost.scheduler.start(self)


def copy_for(message, about, properties, subscription):
    """Copy a retained message for a subscription, at its QoS or lower. ``about``: message.describe()."""
    qos = min(crossing.qos_of(about["flags"]), subscription.qos)
    if subscription.identifier:
        properties += identifier_property(subscription.identifier)
    copy = Message()
    copy.assign(
        message.get_exchange(), message.get_routing_key(), properties, message.get_body(),
        about["timestamp_ms"], about["expires_at_ms"], persistent=qos > 0)
    copy.set_kind(crossing.KIND, crossing.record_flags(qos, True, True))
    return copy
