"""Link ledger: what goes over one shovel or federation link, from a queue or exchange of one machine to a
queue of another, or of the same; and what docs/shovels.md and docs/federation.md promise of it.

``disturb`` is what takes a promise back for what was published until then: an end of a process, a cut of the
network, a disk that refuses or fails, a link that is stopped. With on-confirm, messages may come twice then;
with the other modes, those on the way may be lost, too. Nothing takes back that with on-confirm each message
comes.
"""
import math

from tests.simulation.book import Copy
from tests.simulation.queue_ledger import Hand, QueueLedger

ON_CONFIRM = "on-confirm"
# Until both ends have heard that their connection has ended, and the source has what was on its way again.
HEARD_S = 0.5
HEARTBEAT_S = 2  # of links; a peer that lost its power is found by it
MOST_LATE = 3  # messages that are published in the calm


class Source:
    """What messages are published to: ``exchange``, or the queue ``name``."""

    traits, arguments, dies_to, copies_to, connections = frozenset(), {}, None, None, 0

    def __init__(self, link, name, exchange):
        self.link = link
        self.name = name
        self.exchange = exchange

    def check_length(self, ready):
        """Nothing is promised of it."""

    def accept(self, message):
        """The broker has it."""
        self.link.accept(message)


class LinkLedger(QueueLedger):
    """Of the queue ``to`` that a link fills. ``name``: of the link, and of what it takes from. ``kind``:
    "shovel", "exchange" or "queue". ``ends_at``: the machines at its source and its destination.
    """

    def __init__(self, world, name, book, kind, mode, ends_at):
        super().__init__(world, name if kind == "queue" else f"{name}-to", book)
        self.kind, self.mode = kind, mode
        self.ends_at = ends_at
        self.source = Source(self, name, name if kind == "exchange" else "")
        self.late = 0
        self.link = None  # its operator
        self.is_routed = False  # of an exchange: something was published, and did not come back
        self._disturbed_s = self._disordered_s = -math.inf
        self._gone_s = math.inf  # since when there is no link
        self._newest = {}  # source of messages -> number, among those that have come

    # what is told to it

    def disturb(self, for_s=HEARD_S):
        """What was published until now, or is before everybody has heard of it, may come twice."""
        self._disturbed_s = max(self._disturbed_s, self.world.now_s + for_s)

    def process_ended(self):
        self.disturb()

    def power_was_cut(self):
        """The process has ended, too, and its peers do not know. A link that comes back is another consumer
        beside the one before, and takes what comes behind what that one has.
        """
        self.disturb(2 * HEARTBEAT_S)
        self._disordered_s = self._disturbed_s

    def disk_is_ill(self, fails):
        if fails:
            self.disk_is_full(True)

    def disk_is_full(self, is_full):
        """What the destination refuses is sent again after a while, behind what it took meanwhile."""
        self.disturb()
        if self.ends_at[-1].is_ill():
            self._disordered_s = self._disturbed_s

    def publishes(self):
        """A message is about to be."""
        if any(machine.is_ill() for machine in self.ends_at):
            self.disk_is_full(True)

    def has_gone(self):
        """The link was taken back, and that was answered."""
        self.disturb()
        self._gone_s = self.world.now_s

    def is_to_come(self):
        """And is to be there again."""
        self._gone_s = math.inf

    def comes_back(self, message):
        """No queue takes it: an exchange whose link was never up has none. The broker that is upstream keeps
        what was made there for the link while that is away.
        """
        if self.is_routed:
            self.find(f"{message.number} came back, and the link was up before")

    def accept(self, message):
        super().accept(message)
        self.is_routed = True
        if message.published_s > self._gone_s:
            self.exercised["while a link is gone"] += 1

    # what it says

    def may_be_doubled(self, message):
        """Whether it may come twice, and be lost on its way where nobody waits for confirms."""
        return message.published_s <= self._disturbed_s

    def may_drop(self, message, ttl_s=None):
        return self.mode != ON_CONFIRM and self.may_be_doubled(message)

    def wants_more(self):
        """In the calm: what is published then comes once, whatever the mode."""
        return self.late < MOST_LATE and self.world.now_s > self._disturbed_s and self.link.is_running()

    def is_complete(self):
        return self.late == MOST_LATE and self.link.is_running() and super().is_complete()

    def check_complete(self):
        super().check_complete()
        if not self.link.is_running():
            self.find(f"the link does not run: {self.link.state()}")
        elif self.late < MOST_LATE:
            self.find("nothing could be published in the calm")

    def stays_up(self, reconnects):
        """It was idle in the calm, and has connected so often since."""
        self.exercised["idle links"] += 1
        if reconnects:
            self.find(f"the link was idle, and connected {reconnects} times anew")

    def consumer_connects(self, end=None):
        self.hands = [hand for hand in self.hands if not hand.is_over()]
        self.hands.append(LinkHand(self, end))
        return self.hands[-1]

    def deliver(self, message, copy, redelivered, hand):
        """It came to a client at the destination."""
        if message.queues != [self.source]:
            self.find(f"{copy} came, and was published to {[queue.name for queue in message.queues]}")
        if message.published_s > self._gone_s:
            self.find(f"{copy} came, and was published when there was no link any more")
        if copy.number in self.came and not redelivered:
            if not self.may_be_doubled(message):
                hand.suspect(f"{copy} came twice")
        elif not redelivered:
            self.exercised["moved"] += 1
            if hand.was_alone and self.mode == ON_CONFIRM and message.published_s > self._disordered_s:
                self._check_order(message)
        self.came.add(copy.number)

    def _check_order(self, message):
        """docs/shovels.md: "the order is kept", over kills, too."""
        newest = self._newest.get(message.source, -1)
        self.exercised["moved in order"] += 1
        if message.number < newest:
            self.find(f"{message.number} came after {newest}")
        self._newest[message.source] = message.number


class LinkHand(Hand):
    """``was_alone``: nobody else had anything of the queue when it began."""

    def __init__(self, ledger, end):
        super().__init__(ledger, end)
        self.was_alone = self.is_alone()

    def take(self, message, held, redelivered, headers=None):
        copy = Copy(message.number)
        self._ledger.deliver(message, copy, redelivered, self)
        self.held[copy] = held
        return copy
