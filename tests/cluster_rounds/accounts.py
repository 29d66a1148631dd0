"""Accounts: what publishers were promised and what consumers got, and the promises that were broken.

No I/O. Messages are numbers; a publisher sends each of them once, in rising order, and begins a new
*generation* with each connection. ``problems`` are texts for people.
"""
from tests.durability.test_mqtt_kill import in_first_order


class QueueAccount:
    """A queue with one publisher. ``sent``: {number: generation}; ``confirmed``, ``received``: numbers."""

    def __init__(self, name):
        self.name = name
        self.sent = {}
        self.confirmed = set()
        self.received = set()
        self.problems = []
        self.again = 0  # deliveries of what was received before
        self.generation = 0

    def lacking(self):
        """Confirmed numbers that nobody has got."""
        return self.confirmed - self.received

    def problem(self, text):
        """Note a broken promise."""
        self.problems.append(f"{self.name}: {text}")


class Reading:
    """What one consumer gets over one connection."""

    def __init__(self, account):
        self._account = account
        self._last = {}  # generation -> highest number
        self._generation = 0

    def take(self, number, is_redelivered=False):
        """A delivery. Redeliveries may come in any order; everything else once, and behind what was confirmed
        before it was sent.
        """
        account = self._account
        account.again += number in account.received
        account.received.add(number)
        generation = account.sent.get(number)
        if generation is None:
            account.problem(f"{number} came, which was never sent")
        elif not is_redelivered:
            last = self._last.get(generation, -1)
            if number <= last:
                account.problem(f"{number} came behind {last} of the same connection")
            elif generation < self._generation and number in account.confirmed:
                account.problem(
                    f"{number} of connection {generation} came behind one of {self._generation}, which was "
                    "sent when it had been confirmed")
            self._last[generation] = max(last, number)
            self._generation = max(self._generation, generation)


class StreamAccount(QueueAccount):
    """A stream. ``places``: {offset: number} as a consumer has seen it."""

    def __init__(self, name):
        super().__init__(name)
        self.places = {}

    def check(self, found):
        """``found``: (offset, number) from the first to the last message of the stream."""
        self.received = set()  # what was read early, and lost before its confirm, is none of it
        reading = Reading(self)
        for expected, (offset, number) in enumerate(found):
            if offset != expected:
                self.problem(f"offset {offset} in place of {expected}")
                break
            reading.take(number)
            seen = self.places.get(offset, number)
            if seen != number and seen in self.confirmed:
                self.problem(f"offset {offset} has {number}, and had {seen}, which was confirmed")


class SessionAccount:
    """The MQTT sessions of a publisher and a subscriber: numbers by QoS, as both have them."""

    def __init__(self, publisher, subscriber):
        self._publisher, self._subscriber = publisher, subscriber
        self.problems = []

    def problem(self, text):
        """Note a broken promise."""
        self.problems.append(f"mqtt: {text}")

    def lacking(self):
        """How many messages have yet to come."""
        published, received = self._publisher.published, self._subscriber.received
        return published[1] - len(set(received[1])) + published[2] - len(received[2])

    def check(self):
        """Once everything has come."""
        published, received = self._publisher.published, self._subscriber.received
        if received[2] != list(range(published[2])):
            self.problem(f"QoS 2: {_difference(received[2], published[2])}")
        if sorted(set(received[1])) != list(range(published[1])):
            self.problem(f"QoS 1: {_difference(sorted(set(received[1])), published[1])}")
        if not in_first_order(received[1]):
            self.problem("QoS 1: out of order")


def _difference(received, count):
    """Where the first difference from 0, 1, 2... is."""
    for place, number in enumerate(received):
        if number != place:
            around = received[max(0, place - 3):place + 4]
            return f"{number} came in place of {place}, of {count}; around it {around}"
    return f"{len(received)} came of {count}"
