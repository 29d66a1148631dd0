"""Ledger: what clients were answered, and what may not happen after that.

Messages are numbers, in the order in which they were published; a number's body follows from it. Clients
report here. What breaks a promise of docs/promises.md is a finding of the world, which names the number.
``exercised`` counts how often each promise could have been broken.
"""
import math
from collections import Counter

from tests.durability.account import body_of, number_in

# Seconds from an ack that the broker has seen to one that a power cut leaves: storage.sync's UNHURRIED_S, and
# flushes.
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

    def publish(self):
        """(number, body) of another message."""
        number, self.published = self.published, self.published + 1
        return number, body_of(number)

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

    def power_was_cut(self):
        """The same, and what was not flushed may be gone."""

    def is_complete(self):
        """Whether everything has come that was accepted."""
        return not self.missing()

    def missing(self):
        """What was accepted and has not come."""
        return self.accepted - self.came

    def check_complete(self):
        """At the end, after long enough."""
        if missing := sorted(self.missing()):
            self.find(f"accepted and lost, or never delivered: {missing[:10]} of {len(missing)}")


class QueueLedger(Ledger):
    """Of a durable queue with one publisher and one consumer at a time.

    ``settled``: number -> when it was known that the broker had seen its ack. ``first_of``: where each
    connection of the publisher began; only within one is there an order. ``ends`` counts ends of processes,
    ``cuts`` losses of power: what is read behind one of these says nothing of the broker that came after.
    """

    def __init__(self, world, name):
        super().__init__(world, name)
        self.acked = set()
        self.settled = {}
        self.delivered = set()  # to any client, since the power was cut last
        self.first_of = [0]
        self.ends = self.cuts = 0
        self._ill = set()  # ``ends`` of processes whose disk failed, or was slow

    # the publisher's side

    def publisher_connects(self):
        """What comes from here on may overtake what is still on its way."""
        if self.first_of[-1] != self.published:
            self.first_of.append(self.published)

    # the consumer's side

    def consumer_connects(self):
        """Its hand is empty. Returns it."""
        return Hand(self)

    def missing(self):
        return self.accepted - self.acked

    def process_ended(self):
        """Nobody flushes the latest acks any more: they are gone with the page cache, whenever that goes."""
        self._doubt_latest_acks()
        self.ends += 1

    def disk_is_ill(self, fails):
        self._doubt_latest_acks()
        self._ill.add(self.ends)

    def _doubt_latest_acks(self):
        since_s = self.world.now_s - ACK_FLUSH_S
        for number, at_s in self.settled.items():
            if at_s >= since_s:
                self.settled[number] = math.inf

    def settle(self, numbers, hand):
        """The broker has seen the acks of these that came from there. It forgets them where a flush has
        failed and closed the queue.
        """
        if hand.cuts == self.cuts and hand.ends not in self._ill:
            at_s = self.world.now_s if hand.ends == self.ends else math.inf
            for number in numbers:
                self.settled.setdefault(number, at_s)

    def power_was_cut(self):
        self.settled = {number: at_s for number, at_s in self.settled.items() if at_s < math.inf}
        self.delivered.clear()
        self.cuts += 1

    def deliver(self, number, redelivered, is_late):
        """It came to a consumer, which connected before the power was cut if it ``is_late``."""
        self.came.add(number)
        if number in self.settled:
            self.find(f"{number} came back; its ack was seen at {self.settled[number]:.3f} s")
        if number in self.delivered:
            self.exercised["delivered again"] += 1
            if not redelivered:
                self.find(f"{number} came again, and not as redelivered")
        if not is_late:
            self.delivered.add(number)

    def connection_of(self, number):
        """Which connection of the publisher it came from."""
        low, high = 0, len(self.first_of)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.first_of[middle] <= number else (low, middle)
        return low


class Hand:
    """What one consumer has and has given back, and the order in which it may come.

    What it gave back at once comes in its order, and before anything new that is sent after the broker has
    seen that.
    """

    def __init__(self, ledger):
        self._ledger = ledger
        self.ends, self.cuts = ledger.ends, ledger.cuts
        self.numbers = {}  # number -> delivery tag, in the order in which they came
        self._newest = {}  # connection of the publisher -> number
        self._returned = []  # [sorted numbers, whether the broker has seen it]

    def take(self, number, tag, redelivered):
        """A message came."""
        ledger = self._ledger
        ledger.deliver(number, redelivered, self.cuts != ledger.cuts)
        if number in self.numbers:
            ledger.find(f"{number} came while it was still to be acked")
        self.numbers[number] = tag
        if not self._has_returned(number):
            connection = ledger.connection_of(number)
            newest = self._newest.get(connection, -1)
            if number < newest:
                ledger.find(f"{number} came after {newest}")
            self._newest[connection] = number
        self._check_not_ahead(number)

    def _has_returned(self, number):
        """Whether it was given back, and has come again."""
        for batch in self._returned:
            if number in batch[0]:
                self._ledger.exercised["given back"] += 1
                if number != batch[0][0]:
                    self._ledger.find(f"{number} came before {batch[0][0]}, which was given back with it")
                batch[0].remove(number)
                self._returned = [left for left in self._returned if left[0]]
                return True
        return False

    def _check_not_ahead(self, number):
        """Of what the broker has seen come back, nothing of the same connection comes later than this."""
        ledger = self._ledger
        connection = ledger.connection_of(number)
        for batch, is_seen in self._returned:
            if is_seen and batch[0] < number and ledger.connection_of(batch[0]) == connection:
                ledger.find(f"{number} came before {batch[0]}, which was given back")

    def ack(self, numbers):
        """An ack of these is sent. Returns what to call when the broker has seen it."""
        for number in numbers:
            del self.numbers[number]
        self._ledger.acked.update(numbers)
        return lambda: self._ledger.settle(numbers, self)

    def give_back(self, numbers):
        """They are sent back together. Returns what to call when the broker has seen it."""
        for number in numbers:
            del self.numbers[number]
        batch = [sorted(numbers), False]
        self._returned.append(batch)
        return lambda: batch.__setitem__(1, True)


class TopicLedger(Ledger):
    """Of a session with one subscription, and one publisher.

    ``is_subscribed``: the subscription was answered; what is accepted from then on must come.
    """

    def __init__(self, world, name):
        super().__init__(world, name)
        self.is_subscribed = False
        self.once = set()  # published at QoS 2
        self._may_double = set()
        self._under_way = set()  # of those: not complete on both ways, or not for long
        self._unflushed = set()  # and so when a process ended
        self._is_late = self._keeps_no_identifiers = False

    def publish_at(self, qos):
        """(number, body) of another message."""
        number, body = self.publish()
        if qos == 2:
            self.once.add(number)
            self._under_way.add(number)
            if self._keeps_no_identifiers:
                self._may_double.add(number)
        return number, body

    def complete(self, number):
        """The subscriber has seen the end of its exchange."""
        self.world.after(ACK_FLUSH_S, self._flushed, number)

    def _flushed(self, number):
        if not self._is_late:
            self._under_way.discard(number)

    def process_ended(self):
        self._unflushed |= self._under_way
        self._is_late = self._keeps_no_identifiers = False

    def disk_is_ill(self, fails):
        """Where it fails, identifiers may not be kept, and a kill may double what is under way:
        docs/mqtt.md.
        """
        self._is_late = True
        if fails:
            self._keeps_no_identifiers = True
            self._may_double |= self._under_way

    def power_was_cut(self):
        """What was under way at QoS 2 may come again: docs/mqtt.md, "at least once, both ways"."""
        self._may_double |= self._under_way | self._unflushed

    def deliver(self, number, qos, before):
        """It came to the subscriber's program, at QoS 2 with an identifier that was that of ``before``, whose
        exchange is not complete, or None. A broker that has lost power may not know that it is in use.
        """
        if before is not None and before not in self._may_double:
            self.find(f"{number} came with the identifier of {before}, which had no PUBREL")
        if number in self.once and qos == 2:
            self.exercised["once"] += 1
            if number in self.came and number not in self._may_double:
                self.find(f"{number} came twice at QoS 2")
        self.came.add(number)
