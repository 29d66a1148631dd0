"""AMQP consumers with manners: without acknowledgements, several of one channel, with priorities or a limit
that they share, one active at a time, or one alone.

A seed that has them gives them a queue of their own, so that others are judged as before. ``MANNERS`` says
which a queue's consumers may have together.
"""
from gomq_py.amqp.wire import methods
from tests.simulation.amqp_channel import GOT, OF_CONSUMERS, OF_PUBLISHERS, Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.queue_ledger import QueueLedger

SHARE = 0.2
# no ack: messages are settled when they are sent. shared: the channel's consumers have one limit together.
# ranked: they have priorities. exclusive: one consumer is alone. single: the queue has one active consumer.
# unrecovered: basic.recover without requeue.
MANNERS = (
    ("no ack",), ("no ack", "several"), ("shared", "several"), ("shared",), ("ranked", "several"),
    ("several",), ("exclusive",), ("exclusive", "no ack"), ("single",), ("single", "several"),
    ("unrecovered",))
PRIORITIES = (0, 0, 5, -1)
LIMITS = (0, 1, 3, 20)
LOOK_S = 0.01  # between two looks whether the broker knows of the end of a connection
# Octets that the broker may have taken for a consumer without acknowledgements and not yet given to its
# socket: hub.buffers.OUTPUT_OCTETS, which it fills at a time, and one message that is larger.
UNSENT_OCTETS = 128 * 1024 + 150_000


class MannerlyChannel(Channel):
    """``manners``: of MANNERS; ``consumers``: how many it has at a time."""

    def __init__(self, client, number, ledger, has_consumer, actions, manners):
        self._manners = manners
        super().__init__(client, number, None, ledger, False, has_consumer, actions)
        self._actions |= {name: OWN_ACTIONS[name] for name in manners if name in OWN_ACTIONS}

    def shut(self):
        super().shut()
        self._limits = [0]  # of the channel: the one that was answered, and those that were asked for
        self._ranks = {}  # tag of a consumer -> its priority, once it was answered
        self._prefetches = []

    def lose(self):
        if "no ack" in self._manners and self._hand is not None:
            self._consumes.may_have_sent(self._hand, UNSENT_OCTETS)
        super().lose()

    # what it asks

    def _begin_to_consume(self, method):
        super()._begin_to_consume(method)
        if self._has_consumer and "several" in self._manners:
            for _ in range(self._random.choice((1, 2))):
                self._consume()

    def _consume(self):
        """As the channel's, with what its manners say."""
        if self._client.is_calm and "exclusive" in self._manners:
            self._has_consumer = False  # another one may have the queue for itself until the end
            return
        if "shared" in self._manners:
            self._share()
        else:
            self._qos()
        self._consumers += 1
        tag, arguments = self._hand.consumes(f"{self._client.name}-{self._number}-{self._consumers}")
        rank = self._random.choice(PRIORITIES) if "ranked" in self._manners else 0
        if rank:
            arguments |= {"x-priority": rank}
        self._consuming[tag] = 0 if "no ack" in self._manners else self._prefetch
        is_exclusive = "exclusive" in self._manners
        if is_exclusive:
            self._client.expects.add("in exclusive use")

        def consumes(_method):
            if tag in self._cancelled or tag not in self._consuming:
                return  # its end, or that of its channel, is asked for, and may be there
            self._ranks[tag] = rank
            self._consumes.begins_to_consume(self._hand, tag, is_exclusive)

        self._say(f"consumes as {tag}, {' '.join(self._manners)}, at most {self._prefetch} {arguments or ''}")
        self._ask(methods.BasicConsume(
            queue=self._consumes.name, consumer_tag=tag, arguments=arguments, exclusive=is_exclusive,
            no_ack="no ack" in self._manners), methods.BasicConsumeOk, consumes)

    def _cancel(self):
        for tag in self._consuming:
            self._ranks.pop(tag, None)
            self._consumes.ends_to_consume(self._hand, tag)
        super()._cancel()

    def _qos(self):
        """It lifts the limit of the channel, too: docs/compatibility.md."""
        super()._qos()
        self._limit_is_asked(0)

    def _share(self):
        """Another limit for all consumers of the channel together."""
        limit = self._random.choice(LIMITS)
        self._prefetch = 0
        self._say(f"asks for {limit} messages of all its consumers")
        self._ask(methods.BasicQos(prefetch_count=limit, global_=True), methods.BasicQosOk)
        self._limit_is_asked(limit)

    def _limit_is_asked(self, limit):
        limits = self._limits
        limits.append(limit)
        _, then = self._asked[-1]

        def answered(method):
            then(method)
            del limits[:1]

        self._asked[-1] = methods.BasicQosOk, answered

    def _recover_without_requeue(self):
        """The broker does not know how: 540, docs/compatibility.md."""
        self._say("recovers without requeue")
        self._client.expects.add(" 540 ")
        self._ask(methods.BasicRecover(requeue=False), ())

    def _get(self):
        if "no ack" not in self._manners:
            super()._get()
            return

        def got(method, *content):
            self._has_got = bool(content)
            if content:
                self._take_for_good(method, *content)

        self._ask(methods.BasicGet(queue=self._consumes.name, no_ack=True), GOT, got)

    # what it is told

    def _delivered(self, method, properties, body):
        if self._hand is not None:
            self._consumes.check_active(self._hand, method.consumer_tag)
        if "no ack" in self._manners:
            if self._hand is not None:
                self._take_for_good(method, properties, body)
            return
        super()._delivered(method, properties, body)
        if self._is_open and not self._is_busy:
            self._check_limit()
            self._check_rank(method.consumer_tag)

    HANDLERS = Channel.HANDLERS | {methods.BasicDeliver: _delivered}

    def _take_for_good(self, method, properties, body):
        """It is settled, though the client may not have read it."""
        copy = self._take_message(method, properties, body)
        if copy is not None:
            self._consumes.exercised["without ack"] += 1
            self._hand.ack([copy])()

    def _check_limit(self):
        if all(self._limits):
            self._consumes.exercised["shared limits"] += 1
            count = self._hand.count_consumed()
            if count > max(self._limits):
                self._consumes.find(f"{self._client.name} has {count} messages in hand, of {self._limits}")

    def _check_rank(self, tag):
        """Where the broker has seen all acks, nothing comes to one while one of higher priority has room."""
        if self._unseen or self._asked or tag not in self._ranks:
            return
        for other, rank in self._ranks.items():
            if rank > self._ranks[tag]:
                self._consumes.exercised["ranks"] += 1
                prefetch = self._consuming[other]
                if not prefetch or self._hand.count(other) < prefetch:
                    self._consumes.find(f"{tag} has a message, and {other} of higher priority has room")


OWN_ACTIONS = {
    "shared": (3, MannerlyChannel._share), "unrecovered": (0.5, MannerlyChannel._recover_without_requeue)}


class ConsumedLedger(QueueLedger):
    """Of a queue whose consumers have manners. ``unsent``: octets of messages that the broker may have sent
    to nobody any more, and have settled.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._unsent = 0
        self._may_be_sent = 0  # numbers below it
        self._active = None  # the Hand to which messages came last
        self._alone = None  # (Hand, tag) of an exclusive consumer

    def may_have_sent(self, hand, octets):
        """To a consumer without acknowledgements whose connection was lost: until the broker knows that."""
        if hand.is_over():
            self._unsent += octets + hand.end.window
            self._may_be_sent = len(self.book.messages)
        else:
            self.world.after(LOOK_S, self.may_have_sent, hand, octets)

    def missing(self):
        missing = super().missing()
        sent = {number for number in missing if number < self._may_be_sent}
        octets = sum(len(self.book.messages[number].body) for number in sent)
        return missing - sent if octets <= self._unsent else missing

    def begins_to_consume(self, hand, tag, is_exclusive):
        """It was answered."""
        hand.consuming.add(tag)
        if is_exclusive:
            self.exercised["exclusive consumers"] += 1
            before, self._alone = self._alone, (hand, tag)
            if before is not None and before[0] is not hand and before[1] in before[0].consuming:
                if not before[0].is_over() and not before[0].is_left and before[0].end.is_sound():
                    hand.suspect(f"{tag} is an exclusive consumer, and {before[1]} was one")

    def ends_to_consume(self, hand, tag):
        """It was asked for."""
        hand.consuming.discard(tag)

    def check_active(self, hand, tag):
        """A message came to this consumer of a queue that has one active consumer."""
        if "single" not in self.traits or tag not in hand.consuming:
            return
        before, self._active = self._active, (hand, tag)
        if before is None or before == self._active:
            return
        self.exercised["single active"] += 1
        other, was = before
        if was in other.consuming and not other.is_over() and not other.is_left and (
                other is hand or other.end.is_sound()):
            hand.suspect(f"{tag} has a message, and {was} is the active consumer")


def clients_with_manners(world, network, book, left):
    """Clients of a seed that has them, or none: a publisher of a queue, and those who consume from it."""
    random = world.random("manners")
    manners = random.choice(MANNERS)
    if not left(["m0"], random.random() < SHARE):
        return []
    traits = [name for name in ("quorum", "limited") if random.random() < 0.2]
    traits += ["single"] if "single" in manners else []
    ledger = ConsumedLedger(world, "m0", book, traits)
    roles = [(Channel, ledger, None, False, False, [
        "publish", *random.sample(OF_PUBLISHERS, random.randrange(len(OF_PUBLISHERS) + 1))])]
    consumers = random.choice((2, 3) if {"exclusive", "single"} & set(manners) else (1, 2))
    ledger.is_sole = consumers == 1
    if "ranked" in manners:
        ledger.prefetches = 1, 3
    for _ in range(consumers):
        actions = random.sample(OF_CONSUMERS, random.randrange(len(OF_CONSUMERS) + 1))
        roles.append((
            MannerlyChannel, ledger, random.random() < 0.8, [*actions, "ack_multiple", "get"], manners))
    world.say(ledger.name, " ".join((*sorted(ledger.traits), "with", *manners)))
    count = random.randrange(1, len(roles) + 1)
    return [
        AMQPClient(world, network, f"mannerly-{number}", book, roles[number::count])
        for number in range(count)
    ]
