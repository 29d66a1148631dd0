"""Ledger: what clients were answered, and what may not happen after that.

Messages are numbers, in the order in which they were published; a number's body follows from it. Clients
report here. What breaks a promise of docs/promises.md is a finding of the world, which names the number.
``exercised`` counts how often each promise could have been broken.
"""
from collections import Counter

from tests.durability.account import body_of, number_in

# Seconds from an ack that the broker has seen to one that a power cut leaves: storage.flush.group_commit's
# UNHURRIED_S, and flushes.
ACK_FLUSH_S = 1.0


class Ledger:
    """Of one queue or one subscription. ``accepted``: the broker said that it has them. ``came``: a client
    had them in hand.
    """

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.published = 0
        self.accepted = set()
        self.came = set()
        self.exercised = Counter()

    def publish(self, size=None):
        """(number, body) of another message; its size follows from the number unless it is given."""
        number, self.published = self.published, self.published + 1
        return number, body_of(number, size)

    def accept(self, number):
        """The broker has said so."""
        self.accepted.add(number)
        self.exercised["accepted"] += 1

    def number_of(self, body):
        """The number of what was delivered, or None, which is a finding."""
        try:
            number = number_in(bytes(body))
        except (AssertionError, ValueError) as error:
            self.find(f"octets that nobody published: {error}")
            return None
        if number >= self.published:
            self.find(f"{number} came, and was never published")
        return number

    def find(self, what):
        """A promise is broken."""
        self.world.find(f"{self.name}: {what}")

    def process_ended(self):
        """The broker was killed, or has ended in order."""

    def disk_is_ill(self, fails):
        """A flush takes long, or ``fails``: until the process ends, nobody knows when something is on the
        disk.
        """

    def disk_is_full(self, is_full):
        """Or has room again."""

    def power_was_cut(self):
        """The same, and what was not flushed may be gone."""

    def leader_was_lost(self):
        """The same, and another machine goes on with what it was told of until then. What was not safe there
        may be gone, as what was not flushed may be where the power is cut; and nobody hears of the end.
        """
        self.power_was_cut()

    def is_complete(self):
        """Whether everything has come that was accepted."""
        return not self.missing()

    def missing(self):
        """What was accepted and has not come."""
        return self.accepted - self.came

    def check_complete(self):
        """At the end, after long enough."""
        if missing := sorted(self.missing()):
            self.world.counts["lost"] += len(missing)
            self.find(f"accepted and lost, or never delivered: {missing[:10]} of {len(missing)}")


class TopicLedger(Ledger):
    """Of a session with one subscription, and one publisher.

    ``is_subscribed``: the subscription was answered; what is accepted from then on must come.
    """

    def __init__(self, world, name):
        super().__init__(world, name)
        self.is_subscribed = False
        self.once = set()  # published at QoS 2
        self.taken_back = {}  # number of a will -> None once the disk knows
        self._may_double = set()
        self._under_way = set()  # of those: not complete on both ways, or not for long
        self._unflushed = set()  # and so when a process ended
        self._over_a_loss = set()  # the same of the loss of a leader
        self._is_late = self._has_failed = self._is_full = False
        self._had_room_s = -1.0  # since when, after it was full
        self._has_been_full = False  # since the process began

    def publish_at(self, qos, size=None):
        """(number, body) of another message."""
        number, body = self.publish(size)
        if qos == 2:
            self.once.add(number)
            self._under_way.add(number)
            if self._has_failed:
                self._may_double.add(number)
        return number, body

    def take_back(self, number):
        """It is a will, and nobody is to see it, unless the disk fails the store of wills and the broker is
        killed then: docs/mqtt.md.
        """
        if self._has_failed:
            return
        self.taken_back[number] = self._is_late
        self.exercised["wills taken back"] += 1
        self.world.after(ACK_FLUSH_S, self._forgotten, number)

    def _forgotten(self, number):
        """The disk has it, unless it is slow."""
        if number in self.taken_back and not self.taken_back[number]:
            self.taken_back[number] = None

    def complete(self, number):
        """The subscriber has seen the end of its exchange."""
        self.world.after(ACK_FLUSH_S, self._flushed, number)

    def _flushed(self, number):
        if not self._is_late:
            self._under_way.discard(number)

    def process_ended(self):
        self._unflushed |= self._under_way
        self._is_late = self._has_failed = False
        if self._has_been_full:  # "no room for packet identifiers", both ways: docs/mqtt.md
            self._may_double |= self._under_way | self.once - self.accepted  # also what has yet to come
        self._has_been_full = self._is_full

    def disk_is_ill(self, fails):
        self._is_late = True
        self.taken_back = {number: late is not None or None for number, late in self.taken_back.items()}
        if fails:  # "so may a queue whose own flush failed, once it is restarted": docs/mqtt.md
            self._has_failed = True
            self._may_double |= self._under_way | self.once - self.accepted  # a publisher may send it again

    def disk_is_full(self, is_full):
        self._is_full, self._had_room_s = is_full, self.world.now_s
        self._has_been_full |= is_full

    def may_have_refused(self, since_s):
        """Whether the session may have taken nothing at some time since then."""
        return self._is_full or self._has_failed or self._had_room_s >= since_s

    def power_was_cut(self):
        """What was under way at QoS 2 may come again: docs/mqtt.md, "at least once, both ways"."""
        self._may_double |= self._under_way | self._unflushed
        self._keep_taken_back()

    def _keep_taken_back(self):
        self.taken_back = {number: None for number, late in self.taken_back.items() if late is None}

    def leader_was_lost(self):
        """PUBREC, and PUBLISH and PUBREL to subscribers, leave when a follower knows of them, so that nothing
        comes twice: docs/promises.md. That a will was taken back it may not have heard yet.
        """
        self._over_a_loss |= self._under_way
        self._keep_taken_back()

    def deliver(self, number, qos, before):
        """It came to the subscriber's program, at QoS 2 with an identifier that was that of ``before``, whose
        exchange is not complete, or None.
        """
        comes_again = number in self.came and number in self._may_double
        if before is not None and not comes_again:  # else the broker has lost that its own exchange was over
            self.find(f"{number} came with the identifier of {before}, which had no PUBREL")
        if number in self.taken_back:
            self.find(f"{number} came, a will that was taken back")
        if number in self.once and qos == 2:
            self.exercised["once"] += 1
            self.exercised["once over a loss"] += number in self._over_a_loss
            if number in self.came and number not in self._may_double:
                self.find(f"{number} came twice at QoS 2")
        self.came.add(number)


class RetainedLedger(TopicLedger):
    """Of a topic whose last message is retained."""

    def __init__(self, world, name):
        super().__init__(world, name)
        self.is_subscribed = True

    def missing(self):
        return ()
