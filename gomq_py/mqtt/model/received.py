"""Received: the packet identifiers of what one session's client has sent at QoS 2 and not released.

Beside sent, below the door's inbound half. Where the session is kept, inflight keeps them, too. Never yields.
"""
from functools import partial

from gomq_py import octets
from gomq_py.mqtt.model import inflight as _inflight  # noqa: F401  (its .pxd types what keeps them)
from gomq_py.mqtt.model.found import held_in, those_in
from gomq_py.storage import locations

# A page of Received has 32 identifiers; where it says how many are there, and its octets.
PAGE_BITS, PAGE_MASK = 5, 31
COUNT_AT = 256
PAGE_OCTETS = COUNT_AT + 2
NO_PAGE = bytearray()
NONE = ()
# In place of a location: it is there, but cannot be kept. Segments are numbered from 1.
NOT_KEPT = 1


class Received:
    """The packet identifiers of one session's messages that came at QoS 2 and that PUBREL has not come for.

    ``count``: how many. ``inflight``: the Inflight that keeps them under ``key``, or None. ``begun_at``:
    where it keeps the one whose message is being stored, or 0. ``storing``: those whose message waits for
    files, and who wants to hear of it. ``added``: how many there have been. ``unsafe``: [how many there had
    been, the tuple of destinations] of those whose messages may not be on the disk yet, for each such tuple
    in turn. ``kept_since``: ``added`` when ``inflight`` took the place of another one. ``earlier``: those
    whose messages an earlier run has given to all destinations, a set, or None.

    They lie in pages of 32, because clients number in sequence: most are on the page looked at last, and one
    without neighbours takes no more than a page. An empty page goes when another one is looked at:

        offset  octets
        0       8       of each identifier: where it is kept, NOT_KEPT, or 0: it is not there
        256     2       how many are there
    """

    __slots__ = (
        "inflight", "key", "count", "pages", "page", "number", "at", "begun_at", "storing", "added", "unsafe",
        "latest", "closed", "partly", "kept_since", "earlier",
    )

    def __init__(self, inflight=None, key=0):
        self.inflight = inflight
        self.key = key
        self.count = 0
        self.pages = {}  # {number: page}
        self.number = -1
        self.page = NO_PAGE
        self.at = octets.pointer(NO_PAGE)
        self.begun_at = 0
        self.storing = {}  # {identifier: [its places in those that have it, callback(taken, queues)...]}
        self.partly = None  # {identifier: places of its message in those that have it}, once it is_partly()
        self.added = self.kept_since = 0
        self.unsafe = []
        self.latest = None  # destinations of the last of unsafe
        self.earlier = None
        self.closed = False

    def has(self, identifier):
        """Whether it is there."""
        return self._value(identifier) != 0

    def begin(self, identifier, destinations, message):
        """One that is not there, or that postpone() was called for: its message is given to these, a tuple,
        next, and add(), not_stored() or postpone() comes then.
        """
        if self.inflight is None or self.closed:
            return
        if not destinations and self.is_partly(identifier):  # nobody lacks it any more
            self.begun_at = self.inflight.whole(self.key, identifier)
        else:
            self.begun_at = self.inflight.begun(
                self.key, identifier, destinations, message, self._had(identifier))

    def postpone(self, identifier, message, destinations, left, taken):
        """Its message waits for files: the first of those ``left``, the last of its ``destinations``, has
        answered LATER. ``taken``: the others all took it. Returns what a HeldPublish calls ``before``
        it tries again.
        """
        if not self.closed:
            self.storing[identifier] = [self._places_of(identifier)]
            self._put(identifier, self._value(identifier))
        self._wait(identifier, destinations, left, taken)
        return partial(self._try_again, identifier, message)

    def _try_again(self, identifier, message, destinations, left, taken):
        if left is None:
            self.begin(identifier, destinations, message)
        else:
            self._wait(identifier, destinations, left, taken)

    def _wait(self, identifier, destinations, left, taken):
        """Some of the destinations have its message: that is kept, so that they do not get it twice if the
        client sends it again after a restart.
        """
        if self.begun_at and not self.closed:
            places = (
                self.inflight.places_of(left) if taken
                else self._had(identifier) + self._held_by(identifier, destinations))
            if places:
                kept_at = self.inflight.partly(
                    self.key, identifier, destinations[:len(destinations) - len(left)], places)
                self._release(identifier)
                self._put(identifier, kept_at)
                self.storing[identifier][0] = places
        self._dismiss()

    def _release(self, identifier):
        """What is kept of one is over, and will be noted anew."""
        kept_at = self._value(identifier)
        if kept_at > NOT_KEPT:
            self._put(identifier, NOT_KEPT)
            self.inflight.done(kept_at)
        if self.partly is not None:
            self.partly.pop(identifier, None)

    def _places_of(self, identifier):
        return b"" if self.partly is None else self.partly.get(identifier, b"")

    def _had(self, identifier):
        """The places of its message in those that have it, where it waits for files or is_partly()."""
        return self.storing[identifier][0] if identifier in self.storing else self._places_of(identifier)

    def is_partly(self, identifier):
        """Whether some of its destinations have its message, since an earlier run or since a connection that
        ended because others do not, and its client has to send it again.
        """
        return self.partly is not None and identifier in self.partly

    def lacking(self, identifier, destinations):
        """Those of the destinations that have not got its message, where it is_partly()."""
        if not self.is_partly(identifier):
            return destinations
        keys = self.inflight.keys_in(self.partly[identifier])
        return [destination for destination in destinations if not destination.is_one_of(keys)]

    def give_up_partly(self, identifier):
        """Its client takes it for another message, without DUP: what only some have is not sent again.
        """
        if self.is_partly(identifier) and self.discard(identifier):
            self.inflight.flush()  # or after a kill the other would count for those that have this one

    def _dismiss(self):
        if self.begun_at:
            begun_at = self.begun_at
            self.begun_at = 0
            self.inflight.dismissed(begun_at)

    def is_storing(self, identifier):
        """Whether its message waits for files."""
        return identifier in self.storing

    def when_stored(self, identifier, callback):
        """Call ``callback(taken, queues)`` when a message that waits for files has been stored or refused."""
        self.storing[identifier].append(callback)

    def add(self, identifier, queues=None):
        """One that begin() was called for: its message has been stored, durably in ``queues``, a tuple or
        None.
        """
        if self.closed:
            return
        if self.storing or self.partly is not None:
            self._release(identifier)
        kept_at = self.begun_at
        if kept_at:
            self.begun_at = 0
            kept_at = self.inflight.received(kept_at, self.key, identifier, queues or NONE)
        self._put(identifier, kept_at)
        self.added += 1
        if queues is not None:
            if queues is self.latest:
                self.unsafe[len(self.unsafe) - 1][0] = self.added
            else:
                self.unsafe.append([self.added, queues])
                self.latest = queues
        if self.storing:
            self._tell(identifier, True, queues)

    def not_stored(self, identifier):
        """Its message was refused."""
        self._dismiss()
        if identifier in self.storing or self.is_partly(identifier):
            if self._value(identifier):
                self._release(identifier)
                self._take_out(identifier)
            self._tell(identifier, False, None)

    def refused_by_some(self, identifier, destinations):
        """As not_stored(), of a message to these that its client will send again, because it cannot be told:
        it goes to those then that did not take it.
        """
        places = self._had(identifier)
        if self.begun_at:
            places += self._held_by(identifier, destinations)
        if places:
            self._keep_partly(identifier, places)
            self._dismiss()
            self._tell(identifier, False, None)
        else:
            self.not_stored(identifier)

    def _held_by(self, identifier, destinations):
        """The places of the message that begin() was called for in those of these, which lacked it, that have
        it.
        """
        noted, came_ms = self.inflight.noted(self.begun_at)
        return held_in(_sound(destinations), noted[len(self._had(identifier)):], came_ms)

    def lost_by_some(self, identifier, destinations):
        """As discard(), of a message that its client will send again: the stores of some of these have
        failed, and the others have the message, if it is theirs. Boot has flushed those of an earlier run:
        no failure of now loses them.
        """
        if self.earlier is not None and identifier in self.earlier:
            return
        places = b""
        kept_at = self._value(identifier)
        if kept_at > NOT_KEPT and identifier not in self.storing:
            places = those_in(self.inflight.noted(kept_at)[0], _sound(destinations))
        if places:
            self._keep_partly(identifier, places)
        else:
            self.discard(identifier)

    def _keep_partly(self, identifier, places):
        kept_at = self.inflight.received_before(self.key, identifier, False, places)
        self._release(identifier)
        self.restore_partly(identifier, kept_at, places)

    def _tell(self, identifier, taken, queues):
        for callback in self.storing.pop(identifier, ())[1:]:
            callback(taken, queues)

    def discard(self, identifier):
        """PUBREL, or its message is lost. Returns whether it was there. What waits for files has not been
        answered, and stays.
        """
        if identifier in self.storing:
            return False
        kept_at = self._value(identifier)
        if kept_at == 0:
            return False
        if self.partly is not None:
            self.partly.pop(identifier, None)
        self._take_out(identifier)
        if kept_at != NOT_KEPT:
            self.inflight.done(kept_at)
        return True

    def awaited(self, identifier):
        """What must be flushed before PUBREC may leave for one that was there: a list of tuples. If a queue
        among them has failed, the message may be lost.
        """
        awaited = [queues for _, queues in self.unsafe]
        kept_at = self._value(identifier)
        if kept_at > NOT_KEPT and kept_at > self.inflight.sure_mark and not self.inflight.failed:
            awaited.append(self.inflight.together)
        return awaited

    def mark(self):
        """What to say to sure(), with ``added``, when all that is there is on the disk."""
        return 0 if self.inflight is None else self.inflight.last_received

    def sure(self, added, mark):
        """What was there when these were ``added`` and mark() is on the disk, and the messages: before PUBREC
        leaves.
        """
        unsafe = self.unsafe
        while unsafe and unsafe[0][0] <= added:
            del unsafe[0]
        if not unsafe:
            self.latest = None
        if mark and added >= self.kept_since:  # else it is a mark of the store before
            self.inflight.sure(mark)

    def restore(self, identifier, kept_at):
        """One of an earlier run."""
        self._put(identifier, kept_at)
        if self.earlier is None:
            self.earlier = set()
        self.earlier.add(identifier)

    def restore_partly(self, identifier, kept_at, places):
        """One of an earlier run, whose message only some destinations have."""
        self._put(identifier, kept_at)
        if self.partly is None:
            self.partly = {}
        self.partly[identifier] = places

    def move(self, oldest):
        """Have kept anew what is kept in segments before this number."""
        for identifier in self._identifiers():
            kept_at = self._value(identifier)
            if kept_at != NOT_KEPT and locations.number_of(kept_at) < oldest:
                octets.put_le64(self.at, (identifier & PAGE_MASK) * 8, self.inflight.again(kept_at))

    def keep_in(self, inflight):
        """Have them kept there from now on, because what has kept them has failed. A message whose files have
        no names yet may be lost by a kill: its identifier is not noted.
        """
        outlives = True
        for _, queues in self.unsafe:
            for destination in queues:
                outlives = outlives and destination.outlives_kill()
        for identifier in self._identifiers():
            kept_at = self._value(identifier)
            is_sure = kept_at != NOT_KEPT and kept_at <= self.inflight.sure_mark
            places, waits = self._had(identifier), identifier in self.storing
            now = 0
            if places or not waits and (is_sure or outlives):
                now = inflight.received_before(self.key, identifier, is_sure, places)
            self._put(identifier, now)
        self.inflight = inflight
        self.added += 1
        self.kept_since = self.added

    def close(self):
        """The session is over, and nothing is added."""
        self._dismiss()
        self.closed = True
        self.storing = {}
        self.partly = None
        self.unsafe = []
        self.latest = None
        for identifier in self._identifiers():
            kept_at = self._value(identifier)
            self._take_out(identifier)
            if kept_at != NOT_KEPT:
                self.inflight.done(kept_at, True)

    def _identifiers(self):
        """All that are there, a list."""
        found = []
        for number in sorted(self.pages):
            for identifier in range(number << PAGE_BITS, number + 1 << PAGE_BITS):
                if self._value(identifier):
                    found.append(identifier)
        return found

    def _value(self, identifier):
        """Where it is kept, NOT_KEPT, or 0: it is not there. Where it is, its page is looked at."""
        if identifier >> PAGE_BITS != self.number:
            page = self.pages.get(identifier >> PAGE_BITS)
            if page is None:
                return 0
            self._look_at(identifier >> PAGE_BITS, page)
        return octets.le64(self.at, (identifier & PAGE_MASK) * 8)

    def _put(self, identifier, kept_at):
        """It is there from now on."""
        number = identifier >> PAGE_BITS
        if number != self.number:
            page = self.pages.get(number)
            if page is None:
                page = self.pages[number] = bytearray(PAGE_OCTETS)
            self._look_at(number, page)
        if octets.le64(self.at, (identifier & PAGE_MASK) * 8) == 0:
            octets.put_le16(self.at, COUNT_AT, octets.le16(self.at, COUNT_AT) + 1)
            self.count += 1
        octets.put_le64(self.at, (identifier & PAGE_MASK) * 8, kept_at or NOT_KEPT)

    def _take_out(self, identifier):
        """One of the page that is looked at."""
        octets.put_le64(self.at, (identifier & PAGE_MASK) * 8, 0)
        octets.put_le16(self.at, COUNT_AT, octets.le16(self.at, COUNT_AT) - 1)
        self.count -= 1
        if self.earlier is not None:
            self.earlier.discard(identifier)

    def _look_at(self, number, page):
        if self.number >= 0 and octets.le16(self.at, COUNT_AT) == 0:
            del self.pages[self.number]
        self.number = number
        self.page = page
        self.at = octets.pointer(page)


def _sound(destinations):
    """{key: store} of those that have not failed."""
    return {
        store.key: store for destination in destinations if not destination.failed
        for store in destination.stores() if store.failure is None}
