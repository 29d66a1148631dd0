"""Retained: keeps the latest retained message of each topic of a vhost, and replays it to new subscriptions
(MQTT 5 §3.3.1.3).

Retained is a Destination for publishes with RETAIN (MQTT) or the header mqtt.retain (AMQP). The messages are
stored as MQTT records (wire.crossing), by topic (keyed_store), on disk before the publisher is answered. An
empty payload deletes the topic's message; expired messages are deleted. Never switches greenlets.
"""
from collections import OrderedDict

from gomq_py.broker.routing.route import LATER
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.mqtt.model.expiries import Expiries
from gomq_py.mqtt.model.key_index import successor
from gomq_py.mqtt.model.keyed_store import TOMBSTONE, KeyedStore
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.topics import is_topic_name, swapped
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.storage.message import Message

QUIET = QuietLog(logger("mqtt"))

STORE = "mqtt.retained"
# Default limits of a vhost: some 100 MB of memory; octets of payloads on disk.
MAX_MESSAGES, MAX_OCTETS = 1_000_000, 1 << 30
# Most messages whose original places are remembered after they waited for files.
MOST_LATE = 1000

# Retain handling of a subscription (MQTT 5 §3.8.3.1).
ALWAYS, IF_NEW, NEVER = 0, 1, 2


class Retained(KeyedStore):
    """The retained messages of one vhost: at most ``max_messages``, with at most ``max_octets`` bytes of
    payload. When full, accepts a message only in place of a larger one of the same topic.
    """

    takes_publishes_only = True

    def __init__(self, vhost):
        super().__init__(vhost, STORE, _topic_of, _tombstone)
        self.max_messages, self.max_octets = MAX_MESSAGES, MAX_OCTETS
        self.replays = {}  # session: Replay
        self._last = 0  # place of the last message
        self._moves = 0
        self._moved = {}  # new location of a message rewritten during replays: its place
        # location of a message stored after a wait for files: the place it would have had
        self._late = {}
        self.waits = Waits()
        self._expiries = Expiries(lambda: vhost.timers, self._expire)
        self._expiring = Expiring(self)

    # messages come

    def publish(self, message):
        """Retain a message for the topic in its routing key. Returns 1 if done, or if no subscriber could get
        the message. Returns 0 if refused, LATER if the message must wait for a new segment file.
        """
        topic = _topic_of(message)
        if topic is None:
            return 1  # no subscriber could get the message
        return self.store(topic, message)

    def store(self, topic, message):
        """Retain a message for a topic. An empty message deletes the retained message. Returns 1 if done, 0
        if refused, LATER if the message must wait for a new segment file.
        """
        self.unable = False
        if not message.get_body_length() and not self.closed:
            self.delete(topic)
            return 1
        if not self._has_room(topic, message.get_body_length()):
            return 0
        waited = message.lacking
        kept = _as_kept(message)
        kept.may_wait = message.may_wait
        answer = self.put(topic, kept)
        if answer == LATER:
            if not isinstance(waited, Waiting):
                self._last += 1  # this place has no record: it separates later subscribers
                waited = Waiting(self.waits, self._last)
            waited.wait = kept.lacking
            message.lacking = waited
        elif isinstance(waited, Waiting) and answer:
            self._late[self.index.get(topic)] = waited.place
            if len(self._late) > MOST_LATE:
                del self._late[next(iter(self._late))]
        return answer

    def _has_room(self, topic, octets):
        location = self.index.get(topic)
        count, total = self.index.count + 1, self.octets + octets
        if location is not None and self.show(location, self._shown):
            count, total = count - 1, total - self._shown.get_body_length()
        if count <= self.max_messages and total <= self.max_octets or total < self.octets:
            return True
        QUIET.warning(
            self.name, "%s is full (limits of %d messages and %d bytes): what is to be retained is refused",
            self.name, self.max_messages, self.max_octets)
        return False

    def delete(self, topic):
        """Delete the topic's retained message. Returns whether it existed."""
        self._expiries.forget(topic)
        return super().delete(topic)

    def on_kept(self, key, location, expires_at_ms):
        self._last = max(self._last, location)
        if expires_at_ms:
            self._expiries.note(key, expires_at_ms)

    def write_anew(self, key, location):
        super().write_anew(key, location)
        self._moves += 1
        came_at, now = self._moved.pop(location, self.came_at(location)), self.index.get(key)
        if self.replays and now is not None:
            self._moved[now] = came_at

    def mark(self):
        """Return a value for replay() that distinguishes messages retained until now from later ones."""
        return self._last, self._moves

    def came_at(self, location):
        """Return a message's arrival number, which orders messages and survives a rewrite."""
        return self._moved.get(location, self._late.get(location, location))

    # messages are looked at

    def look(self, topic, message):
        """Fill ``message`` with the topic's retained message. Returns False if it is missing or expired."""
        return self.get(topic, message) and not self._is_expired(message, self.vhost.timers.now_ms())

    def show_current(self, location, message, now_ms):
        """Fill ``message`` with the message at ``location``. Returns False if it is unreadable or expired."""
        return self.show(location, message) and not self._is_expired(message, now_ms)

    def topics(self, now_ms, after="", may_see=None):
        """A generator of (topic, payload size in bytes), in order, for topics after ``after`` ("": all). The
        size is None if the message has expired or ``may_see(topic)`` is false. The caller may switch
        greenlets at a yield.
        """
        message = Message()
        place = successor(after) if after else ""
        while (found := self.index.seek(place)) is not None:
            topic, location = found
            place = successor(topic)
            is_shown = (may_see is None or may_see(topic)) and self.show_current(location, message, now_ms)
            yield topic, message.get_body_length() if is_shown else None

    @staticmethod
    def _is_expired(message, now_ms):
        expires_at_ms = message.describe()["expires_at_ms"]
        return 0 < expires_at_ms <= now_ms

    # replay

    def replay(self, session, subscription, is_new, mark=None):
        """Begin to send a Session the retained messages that match its new subscription, in slices, sorted by
        topic. Does nothing if the subscription's retain handling forbids it. ``is_new``: the session had no
        subscription to the filter. ``mark``: value of mark() when the client subscribed; None: now.
        """
        handling = subscription.retain_handling
        if handling == NEVER or handling == IF_NEW and not is_new:
            return
        if not self.index.count and not self.waits.places:
            return
        replay = self.replays.get(session)
        if replay is None:
            from gomq_py.mqtt.model.replays import Replay

            replay = self.replays[session] = Replay(self, session)
        last, moves = self.mark() if mark is None else mark
        # Messages rewritten meanwhile look new: rather send them twice than never.
        replay.add(subscription, last if moves == self._moves else self._last)

    def session_connected(self, session):
        """Resume the replay to a session whose client has connected."""
        replay = self.replays.get(session)
        if replay is not None:
            replay.go_on()

    def session_ended(self, session):
        """Abandon the replay to an ended session."""
        replay = self.replays.get(session)
        if replay is not None:
            replay.end()

    def replayed(self, session):
        self.replays.pop(session, None)
        if not self.replays:
            self._moved.clear()

    # time and ends

    def turn(self):
        self.wait_for_expiries()
        return super().turn()

    def _expire(self):
        self.vhost.scheduler.start(self._expiring)

    def expire_some(self, clock):
        """Delete expired messages within the time slice ``clock``. Returns whether more may have expired."""
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
        """Start the timer for the next expiry."""
        if not self.closed:
            self._expiries.arm()

    def stop(self):
        super().stop()
        self._expiries.stop()
        for replay in list(self.replays.values()):
            replay.end()


class Waits:
    """Retained messages that wait for files, by arrival number, and replays that wait for these messages."""

    # A client that subscribes while a message waits gets this message from its replay only.
    def __init__(self):
        self.places = OrderedDict()
        self._replays = OrderedDict()  # replay: its place

    def makes_wait(self, replay, last):
        """Return True if ``replay`` must wait for a message numbered up to ``last``. end() resumes it."""
        is_held = self._is_early(last)
        if is_held:
            self._replays[replay] = last
        return is_held

    def end(self, place):
        """Forget the message with this arrival number: it is stored or refused. Resumes waiting replays."""
        del self.places[place]
        while self._replays:
            replay, last = next(iter(self._replays.items()))
            if self._is_early(last):
                break
            del self._replays[replay]
            replay.go_on()

    def _is_early(self, last):
        return bool(self.places) and next(iter(self.places)) <= last


class Waiting:
    """Wraps the ``lacking`` of a message that waits for files, and tells Waits when the wait has ended."""

    def __init__(self, waits, place):
        self._waits = waits
        self.place = place
        self.wait = None
        waits.places[place] = None

    def __call__(self, callback):
        def waited(error):
            self.wait = None
            try:
                callback(error)
            finally:
                if self.wait is None:  # otherwise the message waits again
                    self._waits.end(self.place)

        self.wait(waited)


class Expiring(Job):
    """Deletes expired retained messages, in slices."""

    name = "expiring retained MQTT messages"

    def __init__(self, retained):
        super().__init__()
        self._retained = retained

    def step(self):
        return self._retained.expire_some(SliceClock())

    def failed(self, error):
        """Skip the unreadable message."""
        # If it has expired, it is not shown, and the next boot deletes it.
        self._retained.wait_for_expiries()
        return False


def _topic_of(message):
    try:
        topic = swapped(message.get_routing_key().decode())
    except UnicodeDecodeError:
        return None
    return topic if is_topic_name(topic) else None


def _tombstone(topic):
    message = Message()
    message.assign(b"", swapped(topic).encode(), b"", b"", 0, persistent=True)
    message.set_kind(crossing.KIND, TOMBSTONE)
    return message


def _as_kept(message):
    """Copy a message as an MQTT record that is persistent, whatever its QoS."""
    fields = message.describe()
    kind, flags, properties = fields["kind"], fields["flags"], message.get_raw()
    if kind != crossing.KIND:
        raw = message.get_properties()
        expires_at_ms = fields["expires_at_ms"]
        lives_s = -(-(expires_at_ms - fields["timestamp_ms"]) // 1000) if expires_at_ms else -1
        properties = crossing.block_of(raw, max(lives_s, -1))
        flags = crossing.flags_of_basic(raw, fields["persistent"])
    publisher = message.publisher
    if publisher is not None:
        properties = crossing.with_publisher(properties, publisher.client_id)
    kept = Message()
    kept.assign(
        message.get_exchange(), message.get_routing_key(), properties, message.get_body(),
        fields["timestamp_ms"], fields["expires_at_ms"], persistent=True)
    kept.set_kind(
        crossing.KIND, crossing.record_flags(crossing.qos_of(flags), True, False, publisher is not None))
    return kept
