"""VHost ledger: what an operator was answered about one vhost, its users and their rights, policies and
limits; what its clients were answered; and what must not happen after that.

A thing has a History of what it may have been: from a question to its answer it may be as before or as it was
asked to be, and so for longer where there is no answer. A check looks at all that may have been from the
moment when a client asked until it was answered, and finds what could not be under any of it.
"""
import math
from itertools import product

from tests.simulation.clock import CLOCK
from tests.simulation.ledger import Ledger

LETTERS = "letters"
_TO_LETTERS = {"dead-letter-exchange": "", "dead-letter-routing-key": LETTERS}
# What policies say, by name; and operator policies.
DEFINITIONS = {
    "short": {"max-length": 3},
    "refusing": {"max-length": 5, "overflow": "reject-publish"},
    "brief": {"message-ttl": 100},
    "short, letters": {"max-length": 3, **_TO_LETTERS},
    "brief, letters": {"message-ttl": 100, **_TO_LETTERS},
    "limited": {"delivery-limit": 1},
    "no effect": {"max-in-memory-length": 1},
}
OPERATOR_DEFINITIONS = {
    "longer": {"max-length": 10}, "slower": {"message-ttl": 1000}, "no effect": {"max-in-memory-length": 1}}
POLICIES = ("policy", "p1"), ("policy", "p2")
OPERATOR_POLICIES = (("operator", "o1"),)
QUEUES = ("g0", "g1")  # under the policies
EXTRA = ("x0", "x1", "x2")
USERS = ("u0", "u1", "u2")
OPERATOR = "guest"  # a vhost that a crash has cut short may be there without its rights
VHOST = ("vhost",)
CONNECTIONS, MAX_QUEUES = ("limit", "max-connections"), ("limit", "max-queues")
# What hangs on the vhost, and goes with it.
IN_VHOST = ("right", "policy", "operator", "limit")
WIPES = ("purge", "delete", "move")
LOOK_S = 0.1  # between two looks whether the broker has closed its end of a connection
CLOSES_S = 40.0  # until a connection has ended whose client does not agree, nor closes its socket
# A connection whose socket the broker has closed counts until what it held has been given back, in slices.
GIVES_BACK_S = 0.5
# Between an arrival and the look at the clock that says how old the message is.
TTL_SLACK_S = 0.05


class History:
    """The values that something may have had, and since when."""

    def __init__(self, value):
        self._spans = [(0.0, frozenset({value}))]

    @property
    def now(self):
        """Those that it may have now."""
        return self._spans[-1][1]

    def may_be(self, values, now_s):
        """From now on."""
        if values != self.now:
            self._spans.append((now_s, frozenset(values)))

    def since(self, at_s):
        """Those that it may have had from then on."""
        values = set()
        for since_s, span in reversed(self._spans):
            values |= span
            if since_s < at_s:
                break
        return values


class Wipe:
    """A purge, a deletion or a move of a queue: what was there when it was ``asked_s`` may be gone.
    ``is_done``: it was answered, and otherwise was under way until ``ended_s``.
    """

    def __init__(self, kind, asked_s):
        self.kind = kind
        self.asked_s = asked_s
        self.ended_s = math.inf
        self.takes = 0
        self.is_done = False


class Queue:
    """``is_there``: whether it may be, or not. ``hands``: ends of connections that have taken from it."""

    def __init__(self, name):
        self.name = name
        self.is_there = History(False)
        self.wipes = []
        self.asks = 0  # declares
        self.hands = []


class Sent:
    """A message. ``ends``: how many processes had ended before. ``takes``: how many hands its queue has had,
    if all of them are over, or -1.
    """

    def __init__(self, number, queue, now_s, ends):
        self.number = number
        self.ends = ends
        self.queue = queue
        self.published_s = now_s
        self.accepted_s = math.inf
        self.takes = len(queue.hands) if all(end.peer.is_closed for end in queue.hands) else -1
        self.is_returned = False
        self.jumps = CLOCK.jumps
        self.is_under_way = True  # it was not answered yet


class Presence:
    """A connection in the vhost, from the moment when its client asks for that. ``others``: that may
    count meanwhile.
    """

    def __init__(self, user, end, asked_s, others):
        self.user = user
        self.end = end
        self.asked_s = asked_s
        self.opened_s = math.inf
        self.is_left = False
        self.ends_s, self.why = math.inf, ""  # since when the broker has to end it, and why
        self.others = others
        self._closed_s = math.inf

    def may_count(self, now_s):
        """Whether the broker may still count it. To be asked now and then."""
        if self.end.peer.is_closed and self._closed_s == math.inf:
            self._closed_s = now_s
        return now_s < self._closed_s + GIVES_BACK_S

    def counts(self):
        """Whether it does for certain."""
        return self.opened_s < math.inf and not self.is_left and self.end.is_sound()


class VHostLedger(Ledger):
    """``name`` is the vhost's. ``is_restored``: everything is granted again, so that all can be judged.
    ``ill``: whether the disk of the process has failed, or is slow or full. ``to_withdraw``: (user, right)
    that the operator takes away for a moment where it is calm; ``is_withdrawn``: it has.
    """

    def __init__(self, world, name):
        super().__init__(world, name)
        self.is_restored = self.is_withdrawn = False
        self.queues = {name: Queue(name) for name in (*QUEUES, LETTERS, *EXTRA)}
        self.messages, self.to_withdraw = [], []
        self.things = {
            VHOST: History(False), CONNECTIONS: History(None), MAX_QUEUES: History(None),
            **{key: History(None) for key in (*POLICIES, *OPERATOR_POLICIES)},
            ("right", OPERATOR): History(None),
            **{(kind, user): History(None) for kind in ("user", "right", "user limit") for user in USERS},
        }
        self.in_force, self.presences = History(()), []
        self.status = None  # of the answer that is told
        self._doubts = {}  # key -> how many processes had ended when a change was not answered
        self._under_way = {}
        self._waiting = {}  # number -> Sent, accepted, and not seen yet
        self._wipes = {}  # key -> Wipes under way
        self.ill, self._is_full = History(False), False
        self._letters = set()  # numbers that have come as dead letters
        self._ends = self._asked_ends = 0  # of processes, now and when the operator asked
        self._cut_s = -math.inf

    # what the operator asks

    def ask(self, changes):
        """For these: key -> value."""
        now_s = self.world.now_s
        self._under_way, self._asked_ends = changes, self._ends
        for key, value in changes.items():
            if key[0] in WIPES:
                self._wipe(key, [self.queues[key[1]]], now_s)
            elif key == VHOST and not value:
                self._wipe(("delete", "*"), self.queues.values(), now_s)
            if key in self.things:
                self.things[key].may_be(self.things[key].now | {value}, now_s)
        self._reckon()

    def answer(self, changes):
        """It is so."""
        now_s = self.world.now_s
        self._under_way = {}
        for key, value in changes.items():
            if key in self.things and not (self.status == 404 and self.is_doubted(key)):
                self._doubts.pop(key, None)
                self.things[key].may_be({value}, now_s)
            self.exercised["governed"] += 1
        self._reckon()
        self._end_wipes(True)
        self._have_to_end(changes)

    def is_doubted(self, key):
        """Whether a restart may undo that it is gone: a deletion that was not flushed is not made again
        (docs/management.md), unless the thing is put before that.
        """
        return self._doubts.get(key) == self._asked_ends

    def is_unanswered(self):
        """Nobody knows."""
        self._doubts.update(dict.fromkeys(self._under_way, self._asked_ends))
        self._under_way = {}
        self._end_wipes(False)

    def _wipe(self, key, queues, now_s):
        for queue in queues:
            wipe = Wipe(key[0], now_s)
            queue.wipes.append(wipe)
            self._wipes.setdefault(key, []).append((queue, wipe))
            if key[0] == "delete":
                queue.is_there.may_be({True, False}, now_s)

    def _end_wipes(self, is_done):
        for key, wipes in self._wipes.items():
            for queue, wipe in wipes:
                wipe.ended_s, wipe.is_done, wipe.takes = self.world.now_s, is_done, len(queue.hands)
                if wipe.kind == "purge" and self.status == 404:
                    wipe.is_done = False  # the queue is closed after a fault, and keeps its messages
                self.exercised["wiped"] += is_done and sum(
                    message.queue is queue for message in self._waiting.values())
                if is_done and key == ("delete", "*"):
                    queue.is_there.may_be({False}, self.world.now_s)
        self._wipes.clear()

    def _have_to_end(self, changes):
        for key, value in changes.items():
            if key[0] == "connection":
                self._has_to_end(value, "was closed by the operator")
            elif value in (None, False) and key[0] in ("vhost", "user"):
                for presence in self.presences:
                    if key == VHOST or presence.user == key[1]:
                        self._has_to_end(presence, f"goes on without its {key[0]}")

    def _has_to_end(self, presence, why):
        """docs/architecture/slices.md: connections are closed with their vhost, and with their user. A client
        need not agree.
        """
        self.exercised["connections closed"] += 1
        presence.ends_s, presence.why = self.world.now_s, why
        self.world.after(CLOSES_S, self._look, presence, self._ends)

    def _look(self, presence, ends):
        if ends == self._ends and not presence.is_left and not presence.end.peer.is_closed:
            self.find(f"connection {presence.end.name} of {presence.user} {presence.why}")

    def hears(self, presence, asked_s):
        """The client was answered what it asked then."""
        if asked_s > presence.ends_s:
            self.find(f"connection {presence.end.name} of {presence.user} {presence.why}")

    def hang_on(self, key):
        """The things that go with this one."""
        if key == VHOST:
            return [other for other in self.things if other[0] in IN_VHOST]
        return [("right", key[1]), ("user limit", key[1])] if key[0] == "user" else []

    def _reckon(self):
        """What policies come to, under each of what they may be."""
        values = [self.things[key].now for key in (*POLICIES, *OPERATOR_POLICIES)]
        count = len(POLICIES)
        self.in_force.may_be(
            {merged(chosen[:count], chosen[count:]) for chosen in product(*values)}, self.world.now_s)

    def is_there(self, key):
        """Whether it is for certain."""
        return not self.things[key].now & {None, False}

    # what clients may do

    def check(self, key, may, happened, since_s, text):
        """Find what has happened, or was refused, under none of what the thing may have been. ``may(value)``:
        whether it may happen.
        """
        self.exercised["rights asked"] += 1
        if happened not in {bool(may(value)) for value in self.things[key].since(since_s)}:
            self.find(f"{text}, while {' '.join(key)} was {sorted(map(str, self.things[key].now))}")

    # connections

    def enters(self, user, end):
        """A client asks for a connection."""
        now_s = self.world.now_s
        self.presences = [presence for presence in self.presences if presence.may_count(now_s)]
        presence = Presence(user, end, now_s, list(self.presences))
        for other in self.presences:  # one that is asked for later may be there first
            other.others.append(presence)
        self.presences.append(presence)
        return presence

    def leaves(self, presence):
        """Its client does."""
        presence.is_left = True
        self._see_whether_closed(presence)

    def _see_whether_closed(self, presence):
        if presence in self.presences and presence.may_count(self.world.now_s):
            self.world.after(LOOK_S, self._see_whether_closed, presence)

    def has_entered(self, presence):
        """It is open."""
        for key, others in self._limits_of(presence, self.presences):
            certain = [other for other in others if other.opened_s < presence.asked_s and other.counts()]
            self._check_limit(key, presence.asked_s, len(certain), "connections are open")
        presence.opened_s = self.world.now_s

    def is_kept_out(self, presence, key):
        """By a limit."""
        others = {*presence.others, *self.presences}
        for limit, counted in self._limits_of(presence, others):
            if limit == key:
                self.check_refused(key, presence.asked_s, len(counted), "connections")

    def _limits_of(self, presence, others):
        others = [other for other in others if other is not presence]
        yield CONNECTIONS, others
        yield ("user limit", presence.user), [other for other in others if other.user == presence.user]

    def _check_limit(self, key, since_s, count, what):
        values = self.things[key].since(since_s)
        if None not in values:
            self.exercised["limits"] += 1
            if count >= max(values):
                self.find(f"{count} {what}, another was let in, and {' '.join(key)} is {max(values)}")

    def check_refused(self, key, since_s, count, what):
        """``count``: how many there may be at the most."""
        least = min((math.inf if value is None else value for value in self.things[key].since(since_s)))
        self.exercised["limits"] += 1
        if count < least:
            self.find(f"{' '.join(key)} of {least} is reached, and there are {count} {what} at the most")

    # queues

    def declares(self, queue):
        """A client asks for it. Returns what declared() takes."""
        was_there = queue.is_there.now != {False}
        queue.asks += 1
        queue.is_there.may_be(queue.is_there.now | {True}, self.world.now_s)
        return queue, self.world.now_s, not was_there and queue.asks

    def declared(self, queue, asked_s, is_new):
        """It was answered."""
        if is_new == queue.asks:  # of nobody else
            certain = [other for other in self.queues.values() if other.is_there.since(asked_s) == {True}]
            self._check_limit(MAX_QUEUES, asked_s, len(certain), "queues are there")
        if not any(wipe.kind == "delete" and wipe.ended_s > asked_s for wipe in queue.wipes):
            queue.is_there.may_be({True}, self.world.now_s)

    def has_no_room(self, asked_s):
        """A queue was refused by a limit."""
        there = [queue for queue in self.queues.values() if True in queue.is_there.since(asked_s)]
        self.check_refused(MAX_QUEUES, asked_s, len(there), "queues")

    def check_absent(self, queue, since_s):
        """A client was told that it is not there."""
        if False not in queue.is_there.since(since_s):
            self.find(f"{queue.name} was not found, and nobody has deleted it")

    def check_length(self, queue, count, since_s, under_way):
        """``under_way``: messages that clients have published to it since then. The oldest go:
        docs/arguments.md.
        """
        limits = [dict(rule) for rule in self.in_force.since(since_s)]
        if queue.name in QUEUES and all(
                "max-length" in rule and "overflow" not in rule for rule in limits):
            self.exercised["policies in force"] += 1
            most = max(rule["max-length"] for rule in limits)
            if count > most + under_way:
                self.find(f"{count} messages are in {queue.name}, which may have {most}")

    # messages

    def send(self, queue):
        """(Sent, its body)."""
        number, body = self.publish()
        self.messages.append(Sent(number, queue, self.world.now_s, self._ends))
        return self.messages[-1], body

    def accept(self, message):
        """The broker has it in its queue."""
        self.exercised["accepted"] += 1
        self.exercised["while withdrawn"] += self.is_withdrawn
        message.accepted_s = self.world.now_s
        if message.number not in self.came:
            self._waiting[message.number] = message

    def check_refusal(self, message):
        """It was nacked."""
        rules = self.in_force.since(message.published_s)
        if not self.was_ill(message.published_s) and not any("overflow" in dict(rule) for rule in rules) and (
                False not in message.queue.is_there.since(message.published_s)):
            self.find(f"{message.number} was refused, and no policy says so")

    def under_way(self, queue, since_s):
        """How many messages are being published to this queue, or were since then."""
        return sum(message.is_under_way or since_s <= message.accepted_s < math.inf
                   for message in self.messages if message.queue is queue)

    def may_be_gone(self, message):
        """Whether it need not come."""
        queue, since_s = message.queue, message.published_s
        if any(wipe.ended_s >= since_s for wipe in queue.wipes):
            if any(wipe.kind != "move" for wipe in queue.wipes if wipe.ended_s >= since_s):
                return True
            if any(wipe.ended_s >= since_s for wipe in self.queues[QUEUES[1]].wipes):
                return True
        if queue.name not in QUEUES:
            return False
        rules = [dict(rule) for rule in self.in_force.since(since_s)]
        drop = [rule for rule in rules if drops(rule)]
        return any("dead-letter-exchange" not in rule for rule in drop) or bool(drop) and (
            False in self.queues[LETTERS].is_there.since(since_s))

    def deliver(self, number, queue, redelivered, floor_s):
        """It has come, not before ``floor_s``."""
        message = self.messages[number]
        self.came.add(number)
        self._waiting.pop(number, None)
        rules = [dict(rule) for rule in self.in_force.since(message.published_s)]
        if queue.name == LETTERS and message.queue is not queue:
            if not any("dead-letter-exchange" in rule for rule in rules):
                self.find(f"{number} is a dead letter, and no policy says so")
            # A message that moves is in two places rather than in none, when a process ends.
            if number in self._letters and not redelivered and message.ends == self._ends and (
                    not self.was_ill(floor_s)):
                self.find(f"{number} is a dead letter twice")
            self._letters.add(number)
            self.exercised["governed letters"] += 1
            return
        if queue is not message.queue:
            return  # it was moved
        self._check_wipes(message, redelivered, floor_s)
        now = [dict(rule) for rule in self.in_force.since(floor_s)]
        ttls_ms = [rule.get("message-ttl", math.inf) for rule in now] if queue.name in QUEUES else [math.inf]
        if message.jumps == CLOCK.jumps and max(ttls_ms) < math.inf:
            self.exercised["policies in force"] += 1
            if floor_s - message.accepted_s > max(ttls_ms) / 1000 + TTL_SLACK_S:
                self.find(f"{number} came {floor_s - message.accepted_s:.3f} s after it was accepted")

    def _check_wipes(self, message, redelivered, floor_s):
        """What was deleted or purged does not come back: docs/promises.md, "what the management API answered,
        too". A purge leaves what a client has in hand.
        """
        for wipe in message.queue.wipes:
            if not (wipe.is_done and message.accepted_s <= wipe.asked_s and floor_s >= wipe.ended_s):
                continue
            if wipe.kind == "purge" and message.takes != wipe.takes and (
                    redelivered or self._cut_s >= message.published_s):
                continue
            if wipe.kind != "move":
                self.find(f"{message.number} came after the {wipe.kind} of {message.queue.name}")

    # what else happens

    def process_ended(self):
        self._ends += 1
        self.ill.may_be({self._is_full}, self.world.now_s)
        self.presences = []

    def disk_is_ill(self, fails):
        self.ill.may_be({True}, self.world.now_s)

    def was_ill(self, since_s):
        """Whether the disk was, since then: what comes now may be of a process that has ended."""
        return True in self.ill.since(since_s)

    def disk_is_full(self, is_full):
        self._is_full = is_full
        self.disk_is_ill(True)

    def power_was_cut(self):
        self._cut_s = self.world.now_s

    def missing(self):
        return {number for number, message in self._waiting.items() if not self.may_be_gone(message)}

    def is_complete(self):
        return self.is_restored and not self.to_withdraw and super().is_complete()

    def check_complete(self):
        super().check_complete()
        if not self.is_restored:
            self.find("the operator could not restore it")


def merged(policies, operators):
    """What these come to, as a tuple of items: of each kind the one of the highest priority, of two numbers
    the smaller one: docs/arguments.md.
    """
    definition = _best(policies, DEFINITIONS)
    for key, value in _best(operators, OPERATOR_DEFINITIONS).items():
        definition[key] = min(definition.get(key, value), value)
    return tuple(sorted(definition.items()))


def _best(values, definitions):
    there = [value for value in values if value is not None]
    return dict(definitions[max(there)[1]]) if there else {}


def drops(rule):
    """Whether messages may leave a queue by it that no client has taken."""
    return "message-ttl" in rule or "delivery-limit" in rule or (
        "max-length" in rule and "overflow" not in rule)
