"""Queue ledger: what AMQP clients were answered about one queue, and what may not happen after that.

Clients report here, by the Copies of one Book; how often a message had died x-death says. What may be lost,
and what may come back, follows from the queue's traits.
"""
import math
from collections import Counter

from tests.simulation.book import Copy
from tests.simulation.clock import CLOCK
from tests.simulation.ledger import ACK_FLUSH_S, Ledger

# What a queue may be, and the arguments that make it so. Each seed gives each queue some of them.
TRAITS = {
    "priority": {"x-max-priority": 5},
    "short": {"x-max-length": 10},
    "refusing": {"x-max-length": 10, "x-overflow": "reject-publish"},
    "expiring": {"x-message-ttl": 300},
    "limited": {"x-delivery-limit": 3},
    "quorum": {"x-queue-type": "quorum"},
    "letters": {},  # dead letters go to another queue
    "retries": {},  # and come back after a while
    "expiration": {},  # of single messages
    "delays": {},
    "copies": {},  # by CC, to another queue
}
# What the queues of some parts of a seed may be besides.
MORE_TRAITS = {
    "single": {"x-single-active-consumer": True},
    "narrow": {"x-max-length-bytes": 5000},
    "brimful": {"x-max-length-bytes": 5000, "x-overflow": "reject-publish"},
    "passing on": {"x-max-length": 10, "x-overflow": "reject-publish-dlx"},
    "at once": {"x-message-ttl": 0},
    "transient": {},  # some of its messages
    "sized": {},  # bodies of SIZES
    "expires": {"x-expires": 300},
    "grouped": {"x-message-group": "header:group"},
    "one of a group": {"x-message-group-limit": 1},
}
GROUPS = 4  # of the messages of such a queue
DROPPING = frozenset({"short", "narrow"})
REFUSING = frozenset({"refusing", "brimful", "passing on"})
FLEETING = frozenset({"expiring", "at once"})
QUORUM_LIMIT = 20
QUORUM_PRIORITY = 4  # of a message without one
CLOCK_S = 0.001  # what the broker notes of when a message came: whole milliseconds
READ_S = 0.1  # between two looks whether a client has read what it was told
# With these, what is given back may not come back, or not in its place.
DISORDER = frozenset({*TRAITS, "narrow", "at once"}) - {"refusing", "letters", "copies", "delays"}
# Why a message may be a dead letter of a queue, by its traits.
REASONS = {"rejected": frozenset(TRAITS), "expired": {*FLEETING, "expiration"},
           "maxlen": {*DROPPING, "passing on"}, "delivery_limit": {"limited", "quorum"}}


class QueueLedger(Ledger):
    """``is_sole``: one client consumes at a time, and order can be judged. ``dies_to``: where dead letters
    go. ``settled``: copy -> when it was known that the broker had seen its ack. ``cuts`` counts losses of
    power: what is read behind one says nothing of the broker that came after. ``connections`` counts hands,
    and each time that one of them gave everything back: what was on its way to it is returned then, too.
    """

    prefetches = (0, 1, 3, 20, 200)

    def __init__(self, world, name, book, traits=(), dies_to=None):
        super().__init__(world, name)
        self.book = book
        self.traits = frozenset(traits)
        self.dies_to = dies_to
        self.copies_to = None
        self.is_sole = True
        self.hands = []
        self.connections = self.cuts = 0
        self.settled = {}
        self._dying = set()  # copies of ``settled`` that are dead letters of this process
        self._finished = set()  # numbers that clients acked, here or where they went as dead letters
        self._waiting = {}  # number -> Message, accepted, and not finished
        self._delivered = {}  # copy -> ends, since the power was cut last
        self._counts = {}  # copy -> x-delivery-count
        self.counted = set()  # copies that have to have one, in this process
        self._returns = Counter()  # copy -> how often it was given back
        self._has_been_full = False
        self._ill = set()  # ``ends`` of processes whose disk failed, or was slow
        book.queues[name] = self

    @property
    def arguments(self):
        """Of its declaration."""
        arguments = {key: value for trait in sorted(self.traits)
                     for key, value in (TRAITS | MORE_TRAITS)[trait].items()}
        if "quorum" in self.traits:
            arguments.pop("x-max-priority", None)  # has priorities without it
        if self.dies_to is not None:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dies_to.name}
        return arguments

    @property
    def ends(self):
        """Of processes."""
        return self.book.ends

    # the publisher's side

    def accept(self, message):
        """The broker has it, here or where it has gone from here."""
        self.exercised["accepted"] += 1
        if message.number not in self._finished:
            self._waiting[message.number] = message

    def may_drop(self, message, ttl_s=None):
        """Whether it may be gone without a client that settled it."""
        may_die = self._may_die(message, message.ttl_s if ttl_s is None else ttl_s)
        if self.traits & REFUSING and (message.delay_s or self not in message.queues):
            return True  # nobody hears that it is refused
        if self.dies_to is None:
            return may_die
        if self.dies_to.dies_to is self:  # it may come back when there is no room
            return may_die or bool(self.traits & REFUSING)
        # Nobody hears that a dead letter is refused, whatever was sent there besides.
        return may_die and "refusing" in self.dies_to.traits or self.dies_to.may_drop(message, math.inf)

    def _may_die(self, message, ttl_s):
        if self.traits & FLEETING or ttl_s < math.inf or self._may_be_lost(message):
            return True
        if self.traits & DROPPING and self.may_overflow(message):
            return True
        limit = self.arguments.get("x-delivery-limit", QUORUM_LIMIT if "quorum" in self.traits else math.inf)
        hands = self.connections - message.connections.get(self, 0)
        return self._returns[message.number] + hands > limit

    def _may_be_lost(self, message):
        """It is transient, and not every broker since has ended in order."""
        return message.is_transient and any(
            ends in self._ill or ends != self.ends and ends not in self.book.orderly
            for ends in range(message.ends, self.ends + 1))

    def may_overflow(self, message):
        """Whether it may have been too much, at the head of the queue."""
        return True

    def missing(self):
        return {number for number, message in self._waiting.items() if not self.may_drop(message)}

    def finish(self, number):
        """A client has settled it for good."""
        self._finished.add(number)
        self._waiting.pop(number, None)

    # the consumer's side

    def consumer_connects(self, end=None):
        """Its hand is empty. Returns it."""
        self.hands = [hand for hand in self.hands if not hand.is_over()]
        hand = Hand(self, end)
        self.hands.append(hand)
        self.connections += 1
        return hand

    def process_ended(self):
        """Nobody flushes the latest acks any more: they are gone with the page cache, whenever that goes. And
        dead letters that waited here for room in the queue they go to are messages of this queue again.
        """
        self._doubt_latest_acks()
        for copy in self._dying:
            self.settled.pop(copy, None)
        self._dying.clear()
        self.counted.clear()

    def disk_is_full(self, is_full):
        self._has_been_full = True

    def disk_is_ill(self, fails):
        self._doubt_latest_acks()
        self._ill.add(self.ends)
        self.counted.clear()

    def _doubt_latest_acks(self):
        since_s = self.world.now_s - ACK_FLUSH_S
        for copy, at_s in self.settled.items():
            if at_s >= since_s:
                self.settled[copy] = math.inf

    def is_ill(self):
        """Whether a fault of the disk may have closed it in this process."""
        return self.ends in self._ill

    def settle(self, copies, hand):
        """The broker has seen the acks of these that came from there. It forgets them where a flush has
        failed and closed the queue.
        """
        if hand.cuts == self.cuts and hand.ends not in self._ill:
            at_s = self.world.now_s if hand.ends == self.ends else math.inf
            for copy in copies:
                self.settled.setdefault(copy, at_s)

    def bury(self, copies, hand):
        """As settle(), of what is rejected, and a dead letter elsewhere once there is room."""
        if hand.ends == self.ends:
            self._dying.update(copies)
            self.settle(copies, hand)

    def count(self, copies, hand):
        """The broker has seen that they were given back, and counts that where there is a limit."""
        if hand.ends == self.ends and not self.is_ill() and self.traits & {"limited", "quorum"}:
            self.counted.update(copies)

    def give_back(self, copies):
        """They are to come again."""
        self._returns.update(copy.number for copy in copies)

    def power_was_cut(self):
        self.settled = {copy: at_s for copy, at_s in self.settled.items() if at_s < math.inf}
        self._delivered.clear()
        self._counts.clear()
        self.cuts += 1

    def deliver(self, message, copy, redelivered, hand):
        """It came to a client."""
        if message.is_open:
            self.find(f"{copy} came, and its transaction was not committed")
        may_be_two = self._may_be_two(message, copy)
        is_late = hand.is_over()  # it was read behind the end of its connection
        self.came.add(copy.number)
        if copy in self.settled and not may_be_two and not is_late:
            hand.suspect(f"{copy} came back; its ack was seen at {self.settled[copy]:.3f} s")
        if copy in self._delivered and not may_be_two and not is_late:
            self.exercised["delivered again"] += 1
            if not redelivered:
                hand.suspect(f"{copy} came again, and not as redelivered")
        if not may_be_two and not is_late and not self.is_ill():
            self._check_nobody_has(copy, hand)
            self._check_group_is_in(message, copy, hand)
        if not copy.deaths:
            self._check_is_due(message, copy)
        if hand.cuts == self.cuts and not self.is_ill():  # a closed queue forgets that it was
            self._delivered[copy] = self.ends

    def _may_be_two(self, message, copy):
        """A message that moves is in two places rather than in none, when a process ends; and it is copied
        once more where the disk did not take the definitions: docs/operations.md.
        """
        return (copy.deaths or message.delay_s) and (
            message.ends != self.ends or self._ill or self._has_been_full)

    def _check_nobody_has(self, copy, hand):
        """What one client has in hand comes to no other, until it asks for all of it to go back."""
        for other in self.hands:
            if other.keeps(copy) and (other is hand or other.end is not None and other.end.is_sound()):
                hand.suspect(f"{copy} came, while a client has it in hand")

    def _check_group_is_in(self, message, copy, hand):
        """Of its group nobody else has a message in hand; with a limit of 1 nor has the same consumer."""
        if "grouped" not in self.traits or message.group is None:
            return
        self.exercised["of groups"] += 1
        for other in self.hands:
            if other is hand or other.end is not None and other.end.is_sound():
                for held in (*other.held, *other.pending):
                    if self.book.messages[held.number].group == message.group and other.keeps(held) and (
                        other is not hand or "one of a group" in self.traits
                        or hand.tag_of(held) != hand.comes_by
                    ):
                        hand.suspect(f"{copy} came, while a client has {held} of its group in hand")

    def _check_is_due(self, message, copy):
        if self not in message.queues:
            self.find(f"{copy} came, and was not sent here")
        if message.delay_s and not CLOCK.jumps:
            self.exercised["delayed"] += 1
            if self.world.now_s <= message.published_s + message.delay_s - CLOCK_S:
                self.find(f"{copy} came before its time")

    def check_death(self, message, copy, headers, root):
        """It came as a dead letter, with these headers."""
        self.exercised["dead letters"] += 1
        last = self.book.queues[headers["x-last-death-queue"]]
        reason = headers["x-last-death-reason"]
        if root not in message.queues or last.dies_to is not self:
            self.find(f"{copy} came as a dead letter of {last.name}, once of {root.name}")
        has_expiration = reason == "expired" and message.ttl_s < math.inf  # by CC from another queue
        if not has_expiration and not last.traits & REASONS[reason]:
            self.find(f"{copy} is said to have died in {last.name}, {reason}")
        before = Copy(copy.number, copy.deaths - 1)
        if reason == "maxlen" and not before.deaths and not last.may_overflow(message):
            self.find(f"{copy} is said to have been too much in {last.name}")
        if message.ends == self.ends and not self._ill:
            for hand in last.hands:
                if hand.keeps(before) and hand.end is not None and hand.end.is_sound():
                    self.find(f"{copy} came, while a client has {before} of {last.name} in hand")
        if reason == "expired" and not before.deaths and not CLOCK.jumps:
            ttl_s = min(message.ttl_s, last.arguments.get("x-message-ttl", math.inf) / 1000)
            if self.world.now_s <= message.published_s + ttl_s - CLOCK_S:
                self.find(f"{copy} expired before its time")

    def check_count(self, copy, count, failures, hand):
        """It came as often before, and failed so often: its x-delivery-count."""
        self.exercised["counted"] += 1
        message = self.book.messages[copy.number]
        is_one = not self._may_be_two(message, copy)
        if is_one and count < self._counts.get(copy, 0):
            hand.suspect(f"{copy} came with a count of {count} behind one of {self._counts[copy]}")
        if is_one and not count:
            hand.suspect(f"{copy} was given back, and came without a count")
        # What is in hand when a process ends is counted, and comes again.
        ends = self.ends - (0 if copy.deaths else message.ends)
        if failures > self.arguments.get("x-delivery-limit", QUORUM_LIMIT) + ends:
            self.find(f"{copy} came with a count of {failures}")
        if hand.cuts == self.cuts:  # else it is of before the power cut, which may have taken its count
            self._counts[copy] = count

    def check_length(self, ready):
        """A client was told so many. What was unacked before a restart is trimmed at the first turn."""
        if "short" in self.traits and "refusing" not in self.traits and not self.ends:
            self.exercised["lengths"] += 1
            if ready > self.arguments["x-max-length"]:
                self.find(f"{ready} messages are ready")

    def check_priority(self, message, asked_s):
        """It came for basic.get, which was asked for when nobody else had anything of the queue in hand."""
        self.exercised["priorities"] += 1
        for other in self._waiting.values():
            if (self._priority_of(other) > self._priority_of(message) and other.accepted_s < asked_s
                    and not other.delay_s and other.number not in self.came
                    and not self._may_die(other, other.ttl_s)):
                self.find(f"{message.number} came before {other.number}, which has a higher priority")

    def _priority_of(self, message):
        if message.priority is None:
            return QUORUM_PRIORITY if "quorum" in self.traits else 0
        return message.priority


class Hand:
    """What one channel has of a queue and has given back, and the order in which it may come. ``end``: of its
    connection.

    What it gave back at once comes in its order, and before anything new that is sent after the broker has
    seen that.
    """

    def __init__(self, ledger, end):
        self.ends, self.cuts = ledger.ends, ledger.cuts
        self.began_s = ledger.world.now_s
        self.end = end
        self.held = {}  # copy -> Held, in the order in which they came
        self.pending = {}  # the same, settled in a transaction
        self._ledger = ledger
        # Messages that the last client has in hand come behind others: the broker has to see its end first.
        self._is_alone = self.is_alone()
        self._newest = {}  # source and priority -> number
        self._returned = []  # [source, its numbers in order, whether the broker has seen it]
        self._is_over = False
        self.comes_by = None  # tag of the consumer of the message that comes now
        self.consuming = set()  # tags of consumers that were answered, and not cancelled
        self.is_left = False  # the client has closed its channel, or lost its connection
        self.is_recovering = False  # basic.recover is sent, and not answered

    def is_over(self):
        """Whether the broker has nothing in it any more."""
        return self._is_over or self.end is not None and self.end.peer.is_closed

    def is_alone(self):
        """Whether all others of the queue are over."""
        return all(hand is self or hand.is_over() for hand in self._ledger.hands)

    def leave(self):
        """Its channel ends, for the client."""
        self._ledger.give_back(self.held)
        self.held.clear()
        self.pending.clear()
        self.is_left = True

    def close(self):
        """And for the broker."""
        self.leave()
        self._is_over = True

    def has(self, copy):
        """Whether it is in the hand."""
        return copy in self.held or copy in self.pending

    def keeps(self, copy):
        """Whether it is in the hand, and not asked to go back."""
        return self.has(copy) and not self.is_recovering

    def tag_of(self, copy):
        """The tag of the consumer from which it has this; None: from a get."""
        return (self.held[copy] if copy in self.held else self.pending[copy][0]).consumer_tag

    def count(self, consumer_tag):
        """How many it has from this consumer."""
        return sum(held.consumer_tag == consumer_tag
                   for held in (*self.held.values(), *(held for held, _ in self.pending.values())))

    def count_consumed(self):
        """How many it has from any consumer."""
        return sum(held.consumer_tag is not None for held in self.held.values())

    def consumes(self, tag):
        """(tag, arguments) of a new consumer."""
        return tag, {}

    def wants_again(self):
        """Whether it has to begin anew."""
        return False

    def take(self, message, held, redelivered, headers=None):
        """One came. ``headers`` of a message that has died, or has a count. Returns the Copy."""
        ledger = self._ledger
        headers = headers or {}
        deaths = sum(death["count"] for death in headers.get("x-death", ()))
        copy = Copy(message.number, deaths)
        if not deaths and not message.delay_s and not self._has_returned(message):
            self._check_order(message, redelivered)
        self.comes_by = held.consumer_tag
        ledger.deliver(message, copy, redelivered, self)
        if deaths:
            root = ledger.book.queues[headers["x-first-death-queue"]]
            ledger.check_death(message, copy, headers, root)
            held = held._replace(root=root)
        failures = headers.get("x-delivery-count", 0)
        count = headers.get("x-acquired-count", failures)
        if count or copy in ledger.counted:
            ledger.check_count(copy, count, failures, self)
        self.held[copy] = held
        if not deaths and not message.delay_s:
            self._check_not_ahead(message)
        return copy

    def suspect(self, what):
        """A promise is broken, unless the broker has ended the channel, and the client has yet to read so."""
        if self.end is None:
            self._ledger.find(what)
        else:
            self._ledger.world.after(READ_S, self._find, what)

    def _find(self, what):
        if self.end.is_sound() and not self.is_left:
            self._ledger.find(what)
        elif not self.is_left and not self.is_over():
            self.suspect(what)

    def _check_order(self, message, redelivered):
        """Of one source messages come in their order, but for those that came back behind another client, or
        whose acks a closed queue has forgotten.
        """
        if redelivered and not (self._ledger.is_sole and self._is_alone and not self._ledger.is_ill()):
            return
        source = message.source, message.priority, "grouped" in self._ledger.traits and message.group
        newest = self._newest.get(source, -1)
        if message.number < newest and not (self._ledger.traits & DISORDER and redelivered):
            self._ledger.find(f"{message.number} came after {newest}")
        self._newest[source] = message.number

    def _has_returned(self, message):
        """Whether it was given back, and has come again."""
        number = message.number
        for source, numbers, _ in self._returned:
            if source is message.source and number in numbers:
                self._ledger.exercised["given back"] += 1
                first = self._first(numbers)
                if first is not None and first < number:
                    self._ledger.find(f"{number} came before {first}, which was given back with it")
                numbers.remove(number)
                self._returned = [batch for batch in self._returned if batch[1]]
                return True
        return False

    def _check_not_ahead(self, message):
        """Of what the broker has seen come back, nothing of the same source comes later than this."""
        for source, numbers, is_seen in self._returned:
            first = self._first(numbers)
            if is_seen and source is message.source and first is not None and first < message.number:
                self._ledger.find(f"{message.number} came before {first}, which was given back")

    def _first(self, numbers):
        """The first of these that cannot have expired, or None."""
        messages = self._ledger.book.messages
        return next((number for number in numbers if messages[number].ttl_s == math.inf), None)

    def ack(self, copies):
        """An ack of these is sent. Returns what to call when the broker has seen it."""
        for copy in copies:
            held = self.held.pop(copy)
            (held.root or self._ledger).finish(copy.number)
        return lambda: self._ledger.settle(copies, self)

    def reject(self, copies):
        """They are sent to the dead letters, or nowhere. Returns the same."""
        if self._ledger.dies_to is None:
            return self.ack(copies)
        for copy in copies:
            del self.held[copy]
        self._ledger.exercised["rejected"] += len(copies)
        return lambda: self._ledger.bury(copies, self)

    def give_back(self, copies):
        """They are sent back together. Returns the same."""
        for copy in copies:
            del self.held[copy]
        self._ledger.give_back(copies)
        ledger = self._ledger
        if not ledger.is_sole or ledger.traits & DISORDER:
            return lambda: ledger.count(copies, self)
        batches = {}  # source -> [source, its numbers in order, whether the broker has seen it]
        for copy in sorted(copies):
            message = ledger.book.messages[copy.number]
            if not copy.deaths and not message.delay_s:
                batches.setdefault(message.source, [message.source, [], False])[1].append(copy.number)
        self._returned += batches.values()
        return lambda: [batch.__setitem__(2, True) for batch in batches.values()]

    def purge(self):
        """A purge is sent, which takes what was given back and is not on its way again. Returns what to call
        when it is answered.
        """
        batches = list(self._returned)

        def purged():
            for batch in batches:
                batch[2] = False

        purged()
        return purged

    # in a transaction

    def settle_later(self, copies, is_reject):
        """With the next commit."""
        for copy in copies:
            self.pending[copy] = self.held.pop(copy), is_reject

    def roll_back(self):
        """What was to be settled is not."""
        self.held.update((copy, held) for copy, (held, _) in self.pending.items())
        self.pending.clear()

    def commit(self):
        """A commit is sent. Returns what to call when it is answered."""
        pending, self.pending = self.pending, {}
        self.held.update((copy, held) for copy, (held, _) in pending.items())
        seen = [
            settle([copy for copy, (_, is_reject) in pending.items() if is_reject is kind])
            for kind, settle in ((False, self.ack), (True, self.reject))
        ]
        return lambda: [see() for see in seen]
