"""AMQP clients of a queue with a limit, of messages or of octets, that drops the oldest, or refuses, or has
what it refuses be a dead letter; or where no message may wait. Some messages are transient.

Its ledger asks of each message that is gone, or refused, whether there may have been too much.
"""
import math

from gomq_py.amqp.wire import methods
from tests.simulation.amqp_channel import OF_CONSUMERS, OF_PUBLISHERS, SIZES, Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.book import Copy
from tests.simulation.clock import CLOCK
from tests.simulation.queue_ledger import CLOCK_S, DROPPING, REFUSING, QueueLedger

SHARE = 0.2
LIMITS = ("short", "refusing", "narrow", "narrow", "brimful", "brimful", "passing on", "passing on",
          "at once", "expiring", "transient")
HEAD_OCTETS = 12  # of a body, at most: number and size


class LimitedLedger(QueueLedger):
    """Of a queue that is published to directly, or its dead letters."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        arguments = self.arguments
        self._most = arguments.get("x-max-length")
        self._most_octets = arguments.get("x-max-length-bytes")
        self._known = 0  # of the book's messages
        self._messages = []  # those that were sent here
        self._places = {}  # number -> its place among those
        self._refused = set()
        self._passed_on = {}  # number of one that was refused and is to be a dead letter -> ``ends``

    def _may_refuse(self):
        """Whether the disk of this process was full, or had a fault."""
        return self._has_been_full or self.is_ill()

    def _look_up(self):
        for message in self.book.messages[self._known:]:
            if self in message.queues:
                self._places[message.number] = len(self._messages)
                self._messages.append(message)
        self._known = len(self.book.messages)

    def _is_too_much(self, messages, head=HEAD_OCTETS):
        if self._most is not None:
            return len(messages) > self._most
        return sum(message.size + head for message in messages) > self._most_octets

    # what it drops

    def may_overflow(self, message):
        """Whether there may have been too much with it and what was behind it: what came later, and what
        another source had published before it without an answer.
        """
        if not self.traits & DROPPING:
            return True
        self._look_up()
        place = self._places.get(message.number, 0)
        enough = self._most_octets // min(SIZES) if self._most is None else self._most
        if len(self._messages) - place > enough + 1:
            return True
        self.exercised["what is behind"] += 1
        before = [other for other in self._messages[:place]
                  if other.source is not message.source and other.accepted_s >= message.published_s]
        return self._is_too_much(before + self._messages[place:])

    def may_drop(self, message, ttl_s=None):
        if message.number in self._passed_on:  # it is a copy of what nobody was promised, until a kill
            return self._may_refuse() or self._passed_on[message.number] != self.ends
        return super().may_drop(message, ttl_s)

    # what it refuses

    def refuse(self, message):
        """Its publisher is told so, and may read it late."""
        if self._may_refuse() or message.ends != self.ends:
            return
        self.exercised["refused"] += 1
        self._look_up()
        self._refused.add(message.number)
        there = [other for other in self._messages
                 if other is message or other.number not in self._refused
                 and self.settled.get(Copy(other.number), math.inf) > message.published_s]
        if not self.traits & REFUSING or not self._is_too_much(there):
            self.find(f"{message.number} was refused, and there was room")
        elif "passing on" in self.traits and self.dies_to is not None:
            self._pass_on(message)

    def _pass_on(self, message):
        """It is to come as a dead letter, without having been stored here."""
        if message.number not in self._finished:
            self._passed_on[message.number] = self.ends
            self._waiting[message.number] = message

    # what comes

    def check_length(self, ready):
        most = self._most_octets // min(SIZES) if self._most is None and self._most_octets else self._most
        if most is None or self.ends:
            return
        comes_back = self._returns or self.connections > 1 or any(
            hand.is_left or hand.is_over() for hand in self.hands)
        if self.traits & REFUSING and comes_back:
            return  # there is room for that
        self.exercised["lengths"] += 1
        if ready > most:
            self.find(f"{ready} messages are ready")

    def deliver(self, message, copy, redelivered, hand):
        if not copy.deaths:
            if copy.number in self._refused:
                self.find(f"{copy} came, and was refused")
            self._check_age(message, copy, redelivered, hand)
            self.exercised["transient"] += message.is_transient
            if self.traits & DROPPING and not redelivered:
                self._check_was_not_too_much(message, copy, hand)
        super().deliver(message, copy, redelivered, hand)

    def _check_was_not_too_much(self, message, copy, hand):
        """What came behind it before its consumer did is there, because nobody has had this one yet."""
        if message.ends != self.ends or message.accepted_s >= hand.began_s or self._may_refuse():
            return
        self._look_up()
        there = [message, *(
            other for other in self._messages[self._places.get(message.number, len(self._messages)) + 1:]
            if other.source is message.source and other.accepted_s < hand.began_s)]
        self.exercised["what is in front"] += len(there) > 1
        if self._is_too_much(there, 0):
            self.find(f"{copy} came, and {len(there) - 1} were behind it before")

    def _check_age(self, message, copy, redelivered, hand):
        """Nothing comes that was too old when its consumer came, nor back where nothing may wait."""
        ttl_ms = self.arguments.get("x-message-ttl")
        if ttl_ms is None or CLOCK.jumps:
            return
        self.exercised["not too old"] += 1
        if message.accepted_s + ttl_ms / 1000 + 2 * CLOCK_S < hand.began_s:
            self.find(f"{copy} came, and had expired")
        if not ttl_ms and redelivered:
            self.find(f"{copy} came again, and may not wait")


class LimitedPublisher(Channel):
    """Tells the ledger what is refused."""

    def _refused(self, method, properties, body):
        before = dict(self._unconfirmed)
        super()._refused(method, properties, body)
        for tag, message in before.items():
            if tag not in self._unconfirmed:
                for queue in message.queues:
                    queue.refuse(message)

    HANDLERS = Channel.HANDLERS | {methods.BasicNack: _refused}


class LimitedConsumer(Channel):
    """Gets nothing by basic.get where nothing may wait."""

    def _take_message(self, method, properties, body):
        copy = super()._take_message(method, properties, body)
        if isinstance(method, methods.BasicGetOk) and "at once" in self._consumes.traits and not CLOCK.jumps:
            self._consumes.find(f"{copy} has waited for basic.get")
        return copy


def limited_clients(world, network, book, left):
    """Those of a seed that has them, or none."""
    random = world.random("limits")
    if not left(["limit"], random.random() < SHARE):
        return []
    traits = {random.choice(LIMITS), "sized"}
    traits |= {name for name in ("transient", "letters") if random.random() < 0.5}
    letters = QueueLedger(world, "limit-letters", book) if "letters" in traits else None
    ledger = LimitedLedger(world, "limit", book, traits, dies_to=letters)
    world.say(ledger.name, " ".join(sorted(traits)))
    roles = [(LimitedPublisher, ledger, None, False, False, [
        "publish", *random.sample(OF_PUBLISHERS, random.randrange(len(OF_PUBLISHERS) + 1))])
        for _ in range(random.choice((1, 1, 2)))]
    for queue in (ledger, letters):
        if queue is not None:
            actions = random.sample(OF_CONSUMERS, random.randrange(len(OF_CONSUMERS) + 1))
            roles.append((LimitedConsumer, None, queue, False, random.random() < 0.7,
                          [*actions, "ack_multiple", "get"]))
    count = random.randrange(1, len(roles) + 1)
    return [
        AMQPClient(world, network, f"limited-{number}", book, roles[number::count])
        for number in range(count)
    ]
