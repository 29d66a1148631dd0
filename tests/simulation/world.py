"""World: what happens next, and the trace of what has happened.

Events are functions with a virtual time. The world calls them in the order of their times; those of one
moment come in an order that the seed draws. It runs in the greenlet that made it, and whatever has been
called from an event returns to it, or is left where it stands: see process.die().
"""
import heapq
import os
import re
import traceback
from collections import Counter
from hashlib import sha256
from itertools import count
from random import Random

from greenlet import getcurrent

from tests.simulation.clock import CLOCK

FOLDER_PREFIX = "gomq-simulation-"
# In texts of the broker's: where an object lies, and where its data does. Two runs would differ by it.
_FOLDERS = re.compile(rb"/[^\s']*" + FOLDER_PREFIX.encode() + rb"\w+/")
_PLACES = re.compile(rf" at 0x[0-9a-f]+|/[^\s']*{FOLDER_PREFIX}\w+/")


class Trace:
    """A line for each thing that happened. ``digest()`` tells two traces apart. ``out``: where lines go."""

    def __init__(self, out=None):
        self.lines = 0
        self._out = out
        self._hash = sha256()

    def add(self, line):
        """Note a line."""
        self.lines += 1
        self._hash.update(line.encode())
        if self._out is not None:
            self._out.write(line + "\n")

    def digest(self):
        """The trace so far, as 16 hex digits."""
        return self._hash.hexdigest()[:16]


def described(error):
    """An error as text, with the last places that it came through."""
    places = traceback.extract_tb(error.__traceback__)[-6:]
    way = " > ".join(f"{os.path.basename(place.filename)}:{place.lineno} {place.name}" for place in places)
    return without_places(f"{type(error).__name__}: {error} ({way})")


def without_places(text):
    """A text as it is in every run of the seed."""
    return _PLACES.sub("", text)


def without_folders(octets):
    """Octets that are sent, where a text of the broker's names a file."""
    return _FOLDERS.sub(b"", octets) if FOLDER_PREFIX.encode() in octets else octets


class World:
    """``random(what)`` is a generator of its own for each thing that draws, so that one more draw in one
    place changes nothing elsewhere. ``events`` counts what loops and the world have called, ``counts`` boots,
    kills, calls that failed..., ``faults`` those of each kind. ``findings``: what must not be, as texts.
    """

    def __init__(self, seed, out=None):
        self.seed = seed
        self.events = 0
        self.counts, self.faults = Counter(), Counter()
        self.findings = []
        self.greenlet = getcurrent()
        self.trace = Trace(out)
        self._draw = self.random("order").random
        self._queue = []  # (time, draw, number, function, arguments)
        self._numbers = count()

    @property
    def now_s(self):
        """Virtual seconds since the beginning."""
        return CLOCK.now_s

    def random(self, what):
        """A generator for this."""
        return Random(f"{self.seed} {what}")

    def say(self, who, what):
        """Note it in the trace."""
        self.trace.add(f"{CLOCK.now_s:11.6f} {self.events:7} {who:<12} {what}")

    def find(self, what):
        """This must not be: the seed has failed, and goes on."""
        what = without_places(what)
        self.findings.append(f"at {CLOCK.now_s:.6f} s: {what}")
        self.say("FINDING", what)

    def after(self, delay_s, function, *arguments):
        """Call ``function(*arguments)`` so much later."""
        self.at(CLOCK.now_s + delay_s, function, *arguments)

    def at(self, time_s, function, *arguments):
        """Call it at this time, or now where that is over."""
        heapq.heappush(self._queue, (time_s, self._draw(), next(self._numbers), function, arguments))

    def run(self, until_s, is_over=lambda: False):
        """Let everything happen until then, or until it ``is_over()``. Returns whether it was."""
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            if is_over():
                return True
            time_s, _, _, function, arguments = heapq.heappop(queue)
            if time_s > CLOCK.now_s:
                CLOCK.now_s = time_s
            self.events += 1
            function(*arguments)
        CLOCK.now_s = max(CLOCK.now_s, until_s)
        return is_over()
