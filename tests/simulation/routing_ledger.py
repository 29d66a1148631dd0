"""Routing ledger: which bindings were answered, and where messages may go, or have to, by these.

Bindings come and go while messages are published. One that is asked for and not answered may be there or not;
what its client was answered counts for all that is published later.
"""
from typing import NamedTuple

from tests.simulation.ledger import Ledger
from tests.simulation.queue_ledger import QueueLedger

NO, MAYBE, YES = range(3)
KEYS = ("a.b", "a.c", "b.b.c")
PATTERNS = ("a.b", "a.*", "#.c", "#", "*.b")
HEADERS = ({}, {"h": 1}, {"h": 1, "g": "x"}, {"h": 2, "g": "x"})
RULES = ({"x-match": "all", "h": 1, "g": "x"}, {"x-match": "any", "h": 2, "g": "x"}, {"h": 1},
         {"x-match": "any"})
HASH = "x-consistent-hash"


class Exchange(NamedTuple):
    """``alternate``: the name of its alternate exchange, or None."""

    name: str
    kind: str
    alternate: str | None = None

    @property
    def arguments(self):
        """Of its declaration."""
        return {"alternate-exchange": self.alternate} if self.alternate else {}


class Binding:
    """From an Exchange to another, or to a QueueLedger. ``moments``: [(when, NO, MAYBE or YES)]."""

    def __init__(self, source, destination, key, rule):
        self.source = source
        self.destination = destination
        self.key = key
        self.rule = rule
        self.moments = [(0, NO)]

    @property
    def arguments(self):
        """Of its declaration."""
        return self.rule if self.source.kind == "headers" else {}

    def matches(self, keys, headers):
        """Whether a message goes over it, while it is there."""
        kind = self.source.kind
        if kind == "headers":
            return satisfies(headers, self.rule)
        if kind == "topic":
            return any(fits(self.key.split("."), key.split(".")) for key in keys)
        return kind != "direct" or self.key in keys

    def since(self, begin):
        """NO or YES where it was that since then, and otherwise MAYBE."""
        states = set()
        for at, state in reversed(self.moments):
            states.add(state)
            if at <= begin:
                break
        return states.pop() if len(states) == 1 else MAYBE


def fits(pattern, words):
    """Whether words of a routing key are as in the pattern of a topic."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return fits(pattern[1:], words) or bool(words) and fits(pattern, words[1:])
    return bool(words) and pattern[0] in ("*", words[0]) and fits(pattern[1:], words[1:])


def satisfies(headers, rule):
    """Whether headers meet the arguments of a binding."""
    wanted = [headers.get(key) == value for key, value in rule.items() if key != "x-match"]
    return any(wanted) if rule.get("x-match") == "any" else all(wanted)


class Routed(NamedTuple):
    """How a message was published, and at which moment."""

    exchange: Exchange
    keys: tuple
    headers: dict
    is_mandatory: bool
    began: int


class RoutingLedger(Ledger):
    """Of exchanges: the first may lead to the second, and may have an alternate; another one spreads by a
    hash. ``open``: to which is published. ``queues``: RoutedLedgers. ``moment``: counts changes of bindings.
    """

    def __init__(self, world, name, book):
        super().__init__(world, name)
        random = world.random(name)
        self.book = book
        alternate = random.choice((None, f"{name}-alternate"))
        kinds = "direct", "fanout", "topic", "headers"
        first = Exchange(f"{name}-first", random.choice(kinds), alternate)
        second = Exchange(f"{name}-second", random.choice(kinds))
        other = Exchange(f"{name}-alternate", "fanout")
        hash_ = Exchange(f"{name}-hash", HASH)
        self.exchanges = {exchange.name: exchange for exchange in (other, first, second, hash_)}
        self.open = [first, first, second, hash_]
        self.queues = [RoutedLedger(world, f"{name}-{number}", book, self) for number in range(3)]
        targets = [(first, queue) for queue in self.queues for _ in range(2)]
        targets += [
            (first, second), (second, self.queues[0]), (second, self.queues[2]), (other, self.queues[1])]
        self.bindings = [
            Binding(source, destination, random.choice(PATTERNS if source.kind == "topic" else KEYS),
                    random.choice(RULES))
            for source, destination in targets
        ]
        self.bindings += [
            Binding(hash_, queue, weight, {}) for queue, weight in zip(self.queues, ("1", "2"))]
        # The same one twice is one.
        self.bindings = list({
            (binding.source, binding.destination, binding.key, str(binding.arguments)): binding
            for binding in self.bindings
        }.values())
        self.moment = 0
        self._spread = {}  # number -> the queue that got it by its hash
        self._homes = {}  # key and when the bindings changed last -> queue
        self._waiting = set()  # numbers, accepted, that some queue has to have by their hash

    def change(self, binding, state):
        """It was asked for, or answered."""
        self.moment += 1
        binding.moments.append((self.moment, state))

    def route(self, routed):
        """{queue: MAYBE or YES} of a message that was published then, and was routed since."""
        if routed.exchange.kind == HASH:
            return self._spread_over(routed)
        reached, ahead, queues = {routed.exchange: YES}, [routed.exchange], {}
        while ahead:
            exchange = ahead.pop()
            into = reached[exchange]
            found = []
            for binding in self.bindings:
                if binding.source is exchange and binding.matches(routed.keys, routed.headers):
                    found.append((binding.destination, binding.since(routed.began)))
            if exchange.alternate:
                found.append((self.exchanges[exchange.alternate],
                              YES - max((state for _, state in found), default=NO)))
            for destination, state in found:
                known = queues if isinstance(destination, QueueLedger) else reached
                state = min(state, into)
                if state > known.get(destination, NO):
                    known[destination] = state
                    if known is reached:
                        ahead.append(destination)
        return queues

    def _spread_over(self, routed):
        found = {binding.destination: binding.since(routed.began)
                 for binding in self.bindings if binding.source is routed.exchange}
        found = {queue: state for queue, state in found.items() if state}
        return found if len(found) == 1 else dict.fromkeys(found, MAYBE)

    def has_to_go(self, routed):
        """Whether some queue has to have it."""
        if routed.exchange.kind == HASH:
            return any(binding.since(routed.began) == YES
                       for binding in self.bindings if binding.source is routed.exchange)
        return YES in self.route(routed).values()

    def may_go(self, routed):
        """Whether some queue may have it."""
        return bool(self.route(routed))

    def accept(self, message):
        """The broker has it, and has routed it."""
        routed = message.routed
        message.route = self.route(routed)
        message.queues = [queue for queue, state in message.route.items() if state == YES]
        self.exercised["routed"] += len(message.queues)
        if not self.may_go(routed) and routed.is_mandatory and not message.is_returned:
            self.find(f"{message.number} had no queue, and was not returned")
        if message.is_open:
            self.find(f"{message.number} was accepted, and has the name of another user")
        if routed.exchange.kind == HASH and self.has_to_go(routed) and message.number not in self._spread:
            self._waiting.add(message.number)
        for queue in message.queues:
            message.connections[queue] = queue.connections
        self.book.accept(message)

    def returned(self, message):
        """It came back to its publisher."""
        self.exercised["returned"] += 1
        if not message.routed.is_mandatory:
            self.find(f"{message.number} came back, and is not mandatory")
        elif self.has_to_go(message.routed):
            self.find(f"{message.number} came back, and has a queue")

    def came_to(self, queue, message):
        """It came to a client, from this queue. Returns whether it may."""
        routed = message.routed
        state = self.route(routed) if message.route is None else message.route
        if routed.exchange.kind == HASH:
            self._check_hash(queue, message, routed)
        return queue in state

    def _check_hash(self, queue, message, routed):
        self._waiting.discard(message.number)
        if self._spread.setdefault(message.number, queue) is not queue:
            self.find(f"{message.number} came from two queues, and was sent to one")
        changes = [binding.moments[-1] for binding in self.bindings if binding.source is routed.exchange]
        changed = max(at for at, _ in changes)
        if changed <= routed.began and all(state != MAYBE for _, state in changes):
            self.exercised["hashes"] += 1
            if self._homes.setdefault((routed.keys, changed), queue) is not queue:
                self.find(f"{message.number} and another one with its key came from two queues")

    def missing(self):
        return self._waiting


class RoutedLedger(QueueLedger):
    """Of a queue to which messages are routed."""

    def __init__(self, world, name, book, router):
        super().__init__(world, name, book)
        self._router = router

    def _check_is_due(self, message, copy):
        if not self._router.came_to(self, message):
            self.find(f"{copy} came, and no binding led here")
