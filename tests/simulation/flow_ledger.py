"""Flow ledgers: what subscribers of many kinds are to see of the topics ``f0/a`` and ``f0/b``.

A Flow has what was published. An Inbox is what one session is to get of it, by its subscriptions; a Group
what the members of a shared subscription are to get together. docs/mqtt.md and docs/mqtt-conformance.md
(MQTT-...) say what holds.
"""
from collections import Counter
from typing import NamedTuple

from gomq_py.mqtt.wire.topics import matches
from tests.simulation.clock import CLOCK
from tests.simulation.ledger import Ledger, TopicLedger

# The broker and its clients see one end of a connection, or one publish, at different times.
SLACK_S = 2.0


class Wish(NamedTuple):
    """A subscription. ``identifier``: 0 where it has none."""

    topic_filter: str
    qos: int
    identifier: int = 0


class Published:
    """A message. ``sends``: how often its publisher has sent it. ``safe_s``: when it was answered, or None.
    ``is_late``: the power was cut before that, so that it may have come to the broker after others.
    ``may_be_refused``: the disk may have refused it then, and taken others.
    """

    is_late = False

    def __init__(self, topic, qos, expiry_s, may_be_refused=False):
        self.topic = topic
        self.qos = qos
        self.expiry_s = expiry_s
        self.may_be_refused = may_be_refused
        self.sends = 1
        self.began_s = CLOCK.now_s
        self.safe_s = None
        self._jumps = CLOCK.jumps

    def may_have_expired(self):
        """It was out of date at some time, or wall time is not what it was."""
        return self.is_expiry_in_doubt() or (
            self.expiry_s is not None and CLOCK.now_s >= self.began_s + self.expiry_s)

    def is_expiry_in_doubt(self):
        """True if the clock was set since then, so that the message may have expired and be valid again."""
        return self.expiry_s is not None and CLOCK.jumps != self._jumps

    def must_have_expired(self, since_s):
        """Whoever was sent it after this was sent what is out of date."""
        return self.expiry_s is not None and self.safe_s is not None and CLOCK.jumps == self._jumps and (
            since_s > self.safe_s + self.expiry_s + SLACK_S)


class Flow(Ledger):
    """``inboxes``: who gets what is published."""

    def __init__(self, world, name):
        super().__init__(world, name)
        self.messages = []
        self.inboxes = []
        self._is_full = self._has_failed = False
        self.may_be_closed = False  # sessions, since this process has met a disk that is full or fails

    @property
    def is_subscribed(self):
        """Whether somebody waits for messages."""
        return any(inbox.is_subscribed for inbox in self.inboxes)

    def publish_to(self, topic, qos, expiry_s=None):
        """(number, body) of another message."""
        number, body = self.publish(None if qos else 100)
        self.messages.append(Published(topic, qos, expiry_s, self._is_full or self._has_failed))
        for inbox in self.inboxes:
            inbox.note(number)
        return number, body

    def sends_again(self, number):
        """Its publisher does."""
        self.messages[number].sends += 1

    def accept(self, number):
        super().accept(number)
        message = self.messages[number]
        if message.safe_s is None:
            message.safe_s = CLOCK.now_s
        for inbox in self.inboxes:
            inbox.owe(number)

    def power_was_cut(self):
        for message in self.messages:
            message.is_late = message.is_late or message.safe_s is None

    def process_ended(self):
        self._has_failed = False
        self.may_be_closed = self._is_full

    def disk_is_ill(self, fails):
        self._has_failed |= fails
        self.may_be_closed |= fails
        self._note_refusals()

    def disk_is_full(self, is_full):
        self._is_full = is_full
        self.may_be_closed |= is_full
        self._note_refusals()

    def _note_refusals(self):
        for message in self.messages:
            message.may_be_refused |= message.safe_s is None and (self._is_full or self._has_failed)

    def missing(self):
        return ()  # that is for inboxes to say


class Inbox(TopicLedger):
    """``accepted`` is what its client must get. ``is_subscribed``: its subscriptions were answered, and the
    next one to end them is not begun. ``shut_at``: nothing comes that was published from there on, or None.
    """

    is_ordered = True
    share = 0  # parts of a filter in front of what topics are to match

    def __init__(self, world, name, flow, wishes):
        super().__init__(world, name)
        self.flow = flow
        self.wishes = wishes
        self.tells_identifiers = False
        self.processes = 0
        self.shut_at = 0
        self._since = 0
        self._last = Counter()  # (topic, QoS) -> the number that came last of them
        self._fresh = []  # of those that it must get: what expires
        self._cuts = {}  # number -> power cuts before the connection began that it came over
        self._power_cuts = []  # when
        self._at_most_once = set()  # came at QoS 0
        flow.inboxes.append(self)

    def number_of(self, body):
        return self.flow.number_of(body)

    def granted(self, topic):
        """(QoS, identifiers) of its subscriptions to a topic, or None."""
        wishes = [
            wish for wish in self.wishes if matches(wish.topic_filter.split("/", self.share)[-1], topic)]
        if not wishes:
            return None
        return max(wish.qos for wish in wishes), sorted({wish.identifier for wish in wishes} - {0})

    def qos_of(self, number):
        """At which QoS it comes."""
        message = self.flow.messages[number]
        granted = self.granted(message.topic)
        return None if granted is None else min(message.qos, granted[0])

    # what its clients do

    def opens(self):
        """A subscription is under way."""
        self.shut_at = None

    def subscribed(self):
        """It was answered."""
        self.is_subscribed = True
        self._since = self.flow.published

    def closes(self):
        """It is to end. What was accepted still comes."""
        self.is_subscribed = False

    def unsubscribed(self):
        """It has ended."""
        self.shut_at = self.flow.published
        self.exercised["unsubscribed"] += 1

    def session_ended(self, most_begun=0):
        """Its session is over, with all that was for it."""
        self.is_subscribed = False
        self.shut_at = 0
        self.accepted.clear()
        self.came.clear()
        self._cuts.clear()
        self._at_most_once.clear()
        self._last.clear()
        self._fresh.clear()

    def may_be_new(self):
        """Its client has ended its session, whose end a kill may have taken back. What is there now may be
        that one, or one that a CONNECT has made which the disk refused, without subscriptions.
        """
        self.is_subscribed = False
        self.accepted.clear()
        self._fresh.clear()

    # what comes

    def note(self, number):
        """It is published."""
        if self.qos_of(number) == 2:
            self.once.add(number)
            self._under_way.add(number)
            if self._has_failed:
                self._may_double.add(number)

    def owe(self, number):
        """It was accepted."""
        if self.is_subscribed and number >= self._since and self.qos_of(number):
            self.accepted.add(number)
            self.exercised["accepted"] += 1
            if self.flow.messages[number].expiry_s is not None:
                self._fresh.append(number)

    def process_ended(self):
        super().process_ended()
        self.processes += 1

    def power_was_cut(self):
        super().power_was_cut()
        self._power_cuts.append(self.world.now_s)

    def leader_was_lost(self):
        super().leader_was_lost()
        self._power_cuts.append(self.world.now_s)

    def missing(self):
        return {number for number in self.accepted - self.came
                if not self.flow.messages[number].may_have_expired()}

    def check(self, number, packet, since_s):
        """A PUBLISH came, over a connection that began then. Call before ``deliver``."""
        message = self.flow.messages[number]
        granted = self.granted(message.topic)
        if granted is None:
            self.find(f"{number} came, of topic {message.topic}")
            return
        if self.shut_at is not None and number >= self.shut_at:  # MQTT-3.10.4-2
            self.find(f"{number} came, published after the subscription had ended")
        if self.is_subscribed and number >= self._since:
            self._check_how(number, packet, min(message.qos, granted[0]), granted[1])
        cuts = sum(at_s < since_s for at_s in self._power_cuts)  # octets of before the last may still come
        self._check_again(number, message, packet, cuts)
        if message.expiry_s is not None:
            self._check_time(number, message, packet, since_s)
        if number not in self.came and self.is_ordered:
            self._check_order(number, message, packet.qos, cuts)
        self._cuts[number] = cuts
        if packet.qos == 0:
            self._at_most_once.add(number)

    def _check_how(self, number, packet, qos, identifiers):
        """MQTT-3.8.4-8, and the identifiers of all subscriptions that match."""
        if packet.qos != qos:
            self.find(f"{number} came at QoS {packet.qos} in place of {qos}")
        if self.tells_identifiers:
            told = packet.properties.get("subscription_identifier", [])
            self.exercised["subscription identifiers"] += 1
            if sorted(told if isinstance(told, list) else [told]) != identifiers:
                self.find(f"{number} came by {told} in place of {identifiers}")

    def _check_again(self, number, message, packet, cuts):
        """At QoS 0 at most once; at QoS 1 with DUP (MQTT-3.3.1-1), unless its publisher has sent it again.
        What came at QoS 1 and was not acknowledged may come again at QoS 0, if a kill lost its identifier and
        the subscription is another one by then.
        """
        if packet.qos == 0:
            self.exercised["at most once"] += 1
        is_new = number not in self.came or message.sends > 1 or self._cuts.get(number) != cuts
        if is_new or not self.is_ordered or packet.qos == 2:
            return
        if packet.qos:
            self.exercised["marked DUP"] += 1
            if not packet.dup:
                self.find(f"{number} came again without DUP")
        elif number in self._at_most_once:
            self.find(f"{number} came twice at QoS 0")

    def _check_time(self, number, message, packet, since_s):
        """MQTT-3.3.2-5 and MQTT-3.3.2-6."""
        self.exercised["expiry"] += 1
        if message.must_have_expired(since_s) and not packet.dup:
            self.find(f"{number} came, which had expired after {message.expiry_s} s")
        left_s = packet.properties.get("message_expiry_interval")
        if left_s is not None and not message.may_have_expired():
            least_s = message.expiry_s - (CLOCK.now_s - message.began_s) - 1
            safe_s = CLOCK.now_s if message.safe_s is None else message.safe_s
            most_s = message.expiry_s - max(0, since_s - safe_s) + 1
            if not least_s <= left_s <= min(most_s, message.expiry_s):
                self.find(f"{number} came with {left_s} s left, not {least_s:.1f} to {most_s:.1f}")

    def _check_order(self, number, message, qos, cuts):
        """MQTT-4.6.0-6; and what has not expired is not left out. Of what was sent twice the first may have
        expired, been lost at QoS 0 with a connection, been refused by the disk, or been published before the
        subscription. What was lost so at QoS 0, or had expired before the clock was set back, may also come
        back with the acks that a power cut takes.
        """
        key = message.topic, qos
        self.exercised["in order"] += 1
        may_be_late = message.is_late or message.sends > 1 and (
            message.expiry_s is not None or qos == 0 or message.may_be_refused or number < self._since)
        comes_back = (qos == 0 or message.is_expiry_in_doubt()) and (
            self._cuts.get(self._last[key], cuts) < cuts)
        if number < self._last[key] and not may_be_late and not comes_back:
            self.find(f"{number} came after {self._last[key]}, of one publisher, topic and QoS")
        self._last[key] = max(self._last[key], number)
        self._fresh = [
            before for before in self._fresh
            if before not in self.came and not self.flow.messages[before].may_have_expired()]
        for before in self._fresh:
            earlier = self.flow.messages[before]
            is_in_turn = before < number and not earlier.is_late
            if is_in_turn and qos and (earlier.topic, self.qos_of(before)) == key:
                self.find(f"{number} came before {before}, which has not expired")


class Group(Inbox):
    """Of a shared subscription. Members come and go, and its messages are theirs together; no two come in
    order, because they go to several.
    """

    is_ordered = False
    share = 2

    def __init__(self, world, name, flow, wishes):
        super().__init__(world, name, flow, wishes)
        self.ending = set()  # members whose sessions may end, or have begun to
        self._lost_most = 0
        self._lost_before = 0
        self._given_at_s = 0.0  # by then an end has been dealt with
        self._dropped_before = 0

    def connected(self, member):
        """Its session is there, or has ended before that."""
        if member in self.ending:
            self.ending.discard(member)
            self._given_at_s = self.world.now_s + SLACK_S

    def process_ended(self):
        """A kill drops what has yet to go to other members: docs/mqtt.md."""
        super().process_ended()
        if self.ending or self.world.now_s < self._given_at_s:
            self._dropped_before = self.flow.published

    def session_ended(self, most_begun=0):
        """What a member was being sent at QoS 2 is nobody else's (docs/mqtt.md): so many at most. What a
        closed session has cannot be read.
        """
        if self.flow.may_be_closed:
            self._dropped_before = self.flow.published
        self._lost_most += most_begun
        self._lost_before = self.flow.published
        self.exercised["members that went"] += 1

    def may_be_new(self):
        """What is not this member's is others'."""

    def missing(self):
        missing = {number for number in super().missing() if number >= self._dropped_before}
        begun = {number for number in missing if number in self.once and number < self._lost_before}
        return missing - begun if len(begun) <= self._lost_most else missing
