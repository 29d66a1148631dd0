"""Retained: the latest retained message of each topic of a vhost, and its replay to who subscribes (MQTT 5
§3.3.1.3).

A Destination: a publish that is to be retained goes here beside its other ways, whether it came over MQTT
with RETAIN or over AMQP with the header mqtt.retain. What is kept is a record as MQTT's (wire.crossing), by
topic (keyed_store), on disk before its publisher is answered. An empty payload deletes; what has expired is
gone. Never yields.
"""
from gomq_py.hub.job import Job
from gomq_py.hub.slice_clock import SliceClock
from gomq_py.mqtt.model.expiries import Expiries
from gomq_py.mqtt.model.keyed_store import KeyedStore
from gomq_py.mqtt.model.replays import Replay, qos_of
from gomq_py.mqtt.model.shelf import TOMBSTONE
from gomq_py.mqtt.model.topic_walk import TopicWalk
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.topics import swapped, topic_name_fault
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.message import Message

QUIET = QuietLog(logger("mqtt"))

STORE = "mqtt.retained"
# Of a vhost, unless settings say otherwise: some 100 MB of memory; octets of payloads on disk.
MAX_MESSAGES, MAX_OCTETS = 1_000_000, 1 << 30

# Retain handling of a subscription (MQTT 5 §3.8.3.1).
ALWAYS, IF_NEW, NEVER = 0, 1, 2


class Retained(KeyedStore):
    """``max_messages`` and ``max_octets`` of payloads; what would be more is refused, and what is there may
    be replaced by less.
    """

    def __init__(self, vhost):
        super().__init__(vhost, STORE, _topic_of, _tombstone)
        self.max_messages, self.max_octets = MAX_MESSAGES, MAX_OCTETS
        self.replays = {}  # session: Replay
        self._expiries = Expiries(lambda: vhost.timers, self._expire)
        self._expiring = Expiring(self)

    # messages come

    def publish(self, message):
        """As Destination.publish: retain the message for the topic that its routing key is."""
        topic = _topic_of(message)
        if topic is None:
            return 1  # nobody could get it
        return self.store(topic, message)

    def store(self, topic, message):
        """Retain a message for a topic, or delete what is retained, if it is empty. As publish()."""
        self.unable = False
        if not message.get_body_length():
            self.delete(topic)
            return 1
        if not self._has_room(topic, message.get_body_length()):
            return 0
        kept = _as_kept(message)
        kept.may_wait = message.may_wait
        answer = self.put(topic, kept)
        message.lacking = kept.lacking
        return answer

    def _has_room(self, topic, octets):
        location = self.index.get(topic)
        count, total = self.index.count + 1, self.octets + octets
        if location is not None and self._shelf.look(location):
            count, total = count - 1, total - self._shelf.octets
        if count <= self.max_messages and total <= self.max_octets or total < self.octets:
            return True
        QUIET.warning(
            self.name, "%s is full (limits of %d messages and %d octets): what is to be retained is refused",
            self.name, self.max_messages, self.max_octets)
        return False

    def delete(self, topic):
        """Retain nothing for the topic. Whether there was something."""
        self._expiries.forget(topic)
        return super().delete(topic)

    def on_kept(self, key, location, expires_at_ms):
        if expires_at_ms:
            self._expiries.note(key, expires_at_ms)

    # messages are looked at

    def look(self, topic, message):
        """Fill the message with the one retained for the topic. False: there is none."""
        return self.get(topic, message) and not self._is_expired(message, self.vhost.timers.now_ms())

    def walk(self, topic_filter):
        """A TopicWalk over the topics that a filter matches, for ``show_current``."""
        return TopicWalk(self.index, topic_filter)

    def show_current(self, location, message, now_ms):
        """As show(); False for what has expired, too."""
        return self.show(location, message) and not self._is_expired(message, now_ms)

    def page(self, after, most, now_ms):
        """[(topic, octets of its payload)] of the next topics behind ``after`` ("": from the first on), up to
        ``most``.
        """
        found, message = [], Message()
        place = after + "\0" if after else ""
        while len(found) < most:
            page = self.index.page(place)
            if not page:
                break
            for topic, location in page[:most - len(found)]:
                if self.show_current(location, message, now_ms):
                    found.append((topic, message.get_body_length()))
                place = topic + "\0"
        return found

    @staticmethod
    def _is_expired(message, now_ms):
        expires_at_ms = message.describe()["expires_at_ms"]
        return 0 < expires_at_ms <= now_ms

    # replay

    def replay(self, session, subscription, is_new):
        """A Session has subscribed: give it what is retained for the filter, in slices, in the order of the
        topics, as its retain handling says. ``is_new``: it had no subscription to this filter.
        """
        handling = subscription.retain_handling
        if not self.index.count or handling == NEVER or handling == IF_NEW and not is_new:
            return
        replay = self.replays.get(session)
        if replay is None:
            replay = self.replays[session] = Replay(self, session)
        replay.add(subscription)

    def replayed(self, session):
        """The replay to a session is over."""
        self.replays.pop(session, None)

    # time and ends

    def turn(self):
        self.wait_for_expiries()
        return super().turn()

    def _expire(self):
        self.vhost.scheduler.start(self._expiring)

    def expire_some(self, clock):
        """Delete what has expired, until the clock says that it is time for others. Whether there may be
        more.
        """
        message = Message()
        now_ms = self.vhost.timers.now_ms()
        while not self.closed:
            topic = self._expiries.take()
            if topic is None:
                break
            if self.get(topic, message):
                expires_at_ms = message.describe()["expires_at_ms"]
                if 0 < expires_at_ms <= now_ms:
                    self.delete(topic)
                elif expires_at_ms:
                    self._expiries.note(topic, expires_at_ms)
            if clock.is_over():
                return True
        self.wait_for_expiries()
        return False

    def wait_for_expiries(self):
        """Look again when the next one expires."""
        if not self.closed:
            self._expiries.arm()

    def close(self):
        super().close()
        self._expiries.stop()
        for replay in list(self.replays.values()):
            replay.end()


class Expiring(Job):
    """Deletes what has expired."""

    name = "expiring retained MQTT messages"

    def __init__(self, retained):
        super().__init__()
        self._retained = retained

    def step(self):
        return self._retained.expire_some(SliceClock())

    def failed(self, error):
        """The key that could not be looked at is not shown when it has expired, and goes at the next boot."""
        self._retained.wait_for_expiries()
        return False


def _topic_of(message):
    """The topic of a stored message, or None."""
    try:
        topic = swapped(message.get_routing_key().decode())
    except UnicodeDecodeError:
        return None
    return None if "\0" in topic or topic_name_fault(topic) else topic


def _tombstone(topic):
    message = Message()
    message.assign(b"", swapped(topic).encode(), b"", b"", 0, persistent=True)
    message.set_kind(crossing.KIND, TOMBSTONE)
    return message


def _as_kept(message):
    """The message as a record of MQTT, to be on disk whatever its QoS."""
    fields = message.describe()
    kind, flags, properties = fields["kind"], fields["flags"], message.get_raw()
    if kind != crossing.KIND:
        raw = message.get_properties()
        expires_at_ms = fields["expires_at_ms"]
        lives_s = -(-(expires_at_ms - fields["timestamp_ms"]) // 1000) if expires_at_ms else -1
        properties = crossing.block_of(raw, max(lives_s, -1))
        flags = crossing.flags_of_basic(raw, fields["persistent"])
    kept = Message()
    kept.assign(
        message.get_exchange(), message.get_routing_key(), properties, message.get_body(),
        fields["timestamp_ms"], fields["expires_at_ms"], persistent=True)
    kept.set_kind(crossing.KIND, crossing.record_flags(qos_of(flags), True))
    return kept
