"""Stream ledger: which offset shows which message, for ever, and where readers begin.

What a reader was shown outlives a kill; of what was not confirmed a power cut may leave nothing, and give its
offset to another message. Behind the last fault each reader begins anew with the first message, and has to
find all that was confirmed, and all that was shown.
"""
import math
from datetime import datetime, timezone

from tests.simulation.book import Copy
from tests.simulation.clock import CLOCK, START_S
from tests.simulation.ledger import Ledger

SEGMENT_BYTES = 65536
BEGINS = ("first", "last", "next", "number", "timestamp", "tracked", "tracked")


class StreamLedger(Ledger):
    """Of one stream, which keeps everything. ``shown``: offset -> number. ``positions``: tag of a consumer
    that the broker remembers -> [offset that it has seen settled, the highest one that may be].
    """

    traits = frozenset()
    dies_to = copies_to = None
    connections = 0
    prefetches = (1, 3, 20, 200)
    arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": SEGMENT_BYTES}

    def __init__(self, world, name, book):
        super().__init__(world, name)
        self.book = book
        self.random = world.random(name)
        self.shown = {}
        self.positions = {}
        self.cuts = 0
        self.is_calm = False
        self.keeps_positions = True
        self.may_be_closed = False  # after a flush that failed, until the process ends
        self._offsets = {}  # number -> offset
        self._read_again = set()

    def accept(self, message):
        """The broker has it."""
        self.accepted.add(message.number)
        self.exercised["accepted"] += 1

    def consumer_connects(self, end):
        """Returns its Reader."""
        return Reader(self)

    def check_length(self, ready):
        """There is no promise."""

    def missing(self):
        return (self.accepted | set(self.shown.values())) - self._read_again

    def disk_is_full(self, is_full):
        """Positions find no room."""
        self.keeps_positions = not is_full
        self._forget_positions()

    def disk_is_ill(self, fails):
        if fails:
            self.may_be_closed = True
            self._forget_positions()

    def process_ended(self):
        self.may_be_closed = False

    def _forget_positions(self):
        for position in self.positions.values():
            position[0] = 0

    def power_was_cut(self):
        self._forget_positions()
        self.cuts += 1
        self.shown = {offset: number for offset, number in self.shown.items() if number in self.accepted}
        self._offsets = {number: offset for offset, number in self.shown.items()}

    def show(self, offset, message):
        """A reader has it."""
        number = message.number
        self.came.add(number)
        self.exercised["offsets shown again"] += offset in self.shown
        if self.is_calm:
            self._read_again.add(number)
        if message.is_open:
            self.find(f"{number} came, and its transaction was not committed")
        if self.shown.setdefault(offset, number) != number:
            self.find(f"offset {offset} shows {number}, and has shown {self.shown[offset]}")
        if self._offsets.setdefault(number, offset) != offset:
            self.find(f"{number} is at {offset}, and has been at {self._offsets[number]}")


class Reader:
    """What one channel reads: in place of a Hand. ``next``: the offset that has to come, or None."""

    def __init__(self, ledger):
        self.held = {}  # copy -> Held
        self.pending = {}
        self._ledger = ledger
        self._cuts = ledger.cuts
        self._is_again = False
        self._newest = {}  # source -> number
        self._next = self._tag = None

    def consumes(self, tag):
        """(tag, arguments) of a new consumer."""
        ledger = self._ledger
        self._is_again = ledger.is_calm
        self._next, self._newest = None, {}
        self.held.clear()
        self._begin = "first" if self._is_again else ledger.random.choice(BEGINS)
        self._asked_s = ledger.world.now_s
        self._known = max(ledger.shown, default=-1)
        self._number = ledger.random.randrange(self._known + 2)
        if self._begin == "tracked":
            tag = tag.rpartition("-")[0]
            self._position = ledger.positions.setdefault(tag, [0, 0])
            return tag, {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
        self._position = [0, 0]
        offset = {"number": self._number, "timestamp": self._timestamp()}.get(self._begin, self._begin)
        return tag, {"x-stream-offset": offset}

    def _timestamp(self):
        self._since_s = self._ledger.world.now_s - self._ledger.random.choice((0, 1, 5))
        return datetime.fromtimestamp(int(START_S + CLOCK.jump_s + self._since_s), timezone.utc)

    def wants_again(self):
        """Whether it has to begin anew, because all is calm."""
        return self._ledger.is_calm and not self._is_again

    def take(self, message, held, _redelivered, headers):
        """One came. Returns the Copy."""
        ledger, offset, copy = self._ledger, headers["x-stream-offset"], Copy(message.number)
        self.held[copy] = held
        if self._cuts == ledger.cuts:
            if self._next is None:
                ledger.exercised["begins"] += 1
                self._check_begin(offset, message)
            elif offset != self._next and not self._may_be_gone(self._next, offset):
                ledger.find(f"offset {offset} came in place of {self._next}")
            if message.number < self._newest.get(message.source, -1):
                ledger.find(f"{message.number} came after {self._newest[message.source]}")
            self._newest[message.source] = message.number
            ledger.show(offset, message)
        self._next = offset + 1
        self._position[1] = max(self._position[1], self._next)
        return copy

    def _check_begin(self, offset, message):
        low, high = 0, math.inf
        if self._begin == "first":
            high = offset if self._may_be_gone(0, offset) else 0
        elif self._begin == "last":
            low = self._known
        elif self._begin == "next":
            low = self._known + 1
            if message.accepted_s < self._asked_s:
                self._ledger.find(f"{message.number} came as the next one, and was there before")
        elif self._begin == "number" and self._number in self._ledger.shown:
            low = high = self._number
        elif self._begin == "tracked":
            low, high = self._position[0], math.inf if self._ledger.cuts else self._position[1]
        elif self._begin == "timestamp" and not CLOCK.jumps:
            before = self._ledger.shown.get(offset - 1)
            if before is not None and self._ledger.book.messages[before].published_s > self._since_s:
                self._ledger.find(f"{message.number} came first, and {before} is not older than asked for")
        if not low <= offset <= high:
            self._ledger.find(f"offset {offset} came first, from {self._begin}: {low} to {high}")

    def _may_be_gone(self, first, end):
        """Whether a power cut may have left nothing of these offsets."""
        return self._ledger.cuts and not any(offset in self._ledger.shown for offset in range(first, end))

    def ack(self, copies):
        """An ack of these is sent. Returns what to call when the broker has seen it."""
        for copy in copies:
            del self.held[copy]
        position, offsets = self._position, self._ledger._offsets
        settled = min((offsets.get(copy.number, 0) for copy in self.held), default=self._next or 0)
        ledger, cuts = self._ledger, self._ledger.cuts
        is_kept = not ledger.may_be_closed

        def seen():
            if is_kept and cuts == ledger.cuts and ledger.keeps_positions and not ledger.may_be_closed:
                position[0] = max(position[0], settled)

        return seen

    def count(self, consumer_tag):
        """How many it has from this consumer."""
        return sum(held.consumer_tag == consumer_tag for held in self.held.values())

    def leave(self):
        """Its channel has ended."""
        self.held.clear()

    close = leave
