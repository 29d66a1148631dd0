"""The ledger of the stress: for each queue, what was sent to it, what the broker answered about it,
and what must therefore be in it.

Kept by several threads at once, each call whole under one lock. A message is a number, in a queue at most
once. Breaches of a promise are collected as lines in ``breaches``; the run goes on, so that one line does not
hide the others.
"""
import hashlib
import threading
from collections import defaultdict

MOST_BREACHES = 50


def body_of(number, size):
    """The body of a message: its number, and octets that follow from it, so that a mixed-up body is seen."""
    seed = hashlib.sha256(b"%d" % number).digest()
    return b"%d:%d:" % (number, size) + (seed * (size // len(seed) + 1))[:size]


class Ledger:
    """``dead`` is the queue that rejected messages of ``lettered`` queues go to."""

    def __init__(self, dead, lettered=()):
        self.breaches = []
        self.counts = defaultdict(int)
        self._dead = dead
        self._lettered = frozenset(lettered)
        self._lock = threading.Lock()
        self._next = 0
        self._targets = {}  # number -> queues
        self._sent = defaultdict(set)
        self._confirmed = defaultdict(set)
        self._gone = defaultdict(set)  # may be gone: acked, purged, deleted
        # are gone: the broker has answered something later on the same channel;
        # -> the broker's life of that time
        self._settled = defaultdict(dict)
        self._letters = set()  # rejected in a lettered queue: there or in the dead one
        self._received = defaultdict(set)
        self._in_hand = {}  # (queue, number) -> consumer, of the broker's present life
        self._life = 0
        self._emptied = defaultdict(int)  # queues that are being purged or deleted just now
        self._was_emptied = set()

    # publishers

    def sent(self, queues):
        """A message for these queues is about to be sent. Returns its number."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._targets[number] = queues = tuple(queues)
            for queue in queues:
                self._sent[queue].add(number)
                if self._emptied[queue]:
                    self._gone[queue].add(number)
            return number

    def confirmed(self, numbers):
        """The broker has confirmed them."""
        with self._lock:
            for number in numbers:
                self.counts["confirmed"] += 1
                for queue in self._targets[number]:
                    self._confirmed[queue].add(number)

    # consumers

    def delivered(self, consumer, queue, body, redelivered, life):
        """Returns the number in a delivery, now in this consumer's hands unless it is from an
        earlier life and was read late.
        """
        number, size = (int(part) for part in body.split(b":", 2)[:2])
        with self._lock:
            self.counts["delivered"] += 1
            if body != body_of(number, size):
                self._breach(f"{queue}: the body of {number} has changed")
            if number not in self._sent[queue] and queue != self._dead:
                self._breach(f"{queue}: {number} was never sent to it")
            if life != self._life:  # read late: since then others may have had it
                self._received[queue].add(number)
                return number
            if number in self._settled[queue]:
                settled = self._settled[queue][number]
                self._breach(
                    f"{queue}: {number} was acked in life {settled} and is delivered again in {life}, "
                    f"redelivered: {redelivered}"
                )
            # there it may be twice: a move is a copy first
            if number in self._received[queue] and not redelivered and queue != self._dead:
                self._breach(f"{queue}: {number} is delivered again and not marked")
            self._received[queue].add(number)
            if (holder := self._in_hand.get((queue, number))) is not None and queue != self._dead:
                self._breach(f"{queue}: {number} is with {consumer} and {holder} at once")
            self._in_hand[queue, number] = consumer
            return number

    def will_settle(self, queue, number, rejected=False):
        """It is about to be acked or rejected for good."""
        with self._lock:
            self._in_hand.pop((queue, number), None)
            self._gone[queue].add(number)
            if not rejected:  # maybe after a reject that a kill, or the connection's end, has lost
                self._letters.discard((queue, number))
            elif queue in self._lettered:
                self._letters.add((queue, number))

    def settled(self, queue, numbers):
        """The broker has answered something that came later on the channel."""
        with self._lock:
            self._settled[queue].update(dict.fromkeys(numbers, self._life))

    def will_return(self, queue, number):
        """It is about to go back to its queue."""
        with self._lock:
            self._in_hand.pop((queue, number), None)

    def broker_died(self, life):
        """The broker is dead, and another life of it, of this number, about to begin:
        nobody holds anything.
        """
        with self._lock:
            self._life = life
            self._in_hand.clear()

    def left(self, consumer):
        """A consumer is about to go: what it held goes back."""
        with self._lock:
            for key in [key for key, holder in self._in_hand.items() if holder == consumer]:
                del self._in_hand[key]

    # whoever empties queues

    def emptying(self, queue):
        """A purge or a deletion is about to be asked for: from here on to ``emptied`` nothing is promised
        about what is or comes in.
        """
        with self._lock:
            self._emptied[queue] += 1

    def emptied(self, queue):
        """It has been answered, or will never be."""
        with self._lock:
            self._emptied[queue] -= 1
            self._gone[queue] |= self._sent[queue]
            self._was_emptied.add(queue)

    # the end

    def close(self, found):
        """Compare with what is in the queues at last: {queue: numbers}. Returns the counts."""
        with self._lock:
            everywhere = {queue: set(numbers) for queue, numbers in found.items()}
            for queue, numbers in found.items():
                if len(numbers) != len(everywhere[queue]) and queue != self._dead:
                    self._breach(f"{queue}: {len(numbers) - len(everywhere[queue])} messages are there twice")
                back = self._settled[queue].keys() & everywhere[queue]
                if back:
                    self._breach(f"{queue}: acked and back: {sorted(back)[:10]} of {len(back)}")
            for queue, numbers in self._confirmed.items():
                lost = numbers - self._gone[queue] - everywhere.get(queue, set())
                if lost:
                    self._breach(f"{queue}: confirmed and lost: {sorted(lost)[:10]} of {len(lost)}")
                self.counts["in place"] += len(numbers & everywhere.get(queue, set()))
            for queue, number in self._letters:
                if (
                    number not in everywhere[queue] and number not in everywhere[self._dead]
                    and queue not in self._was_emptied
                ):
                    self._breach(
                        f"{queue}: {number} was rejected and is neither there nor among the dead letters"
                    )
            self.counts["sent"] = self._next
            self.counts["dead letters"] = len(found.get(self._dead, ()))
            return dict(self.counts)

    def _breach(self, line):
        if len(self.breaches) < MOST_BREACHES:
            self.breaches.append(line)
