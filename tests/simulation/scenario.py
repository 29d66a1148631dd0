"""Scenario: what a seed makes of the world: a machine, its clients, what goes wrong, and the judgement.

A stormy time, in which the broker is killed, loses power, stops in order and has a bad disk, at moments of
the seed; then a calm one, after which everybody must have been answered and everything delivered; then an
orderly end and a last boot, after which nothing may come back.
"""
from collections import Counter
from typing import NamedTuple

from tests.simulation.amqp_channel import OF_CONSUMERS, OF_PUBLISHERS, OF_READERS, Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.amqp_consumers import clients_with_manners
from tests.simulation.amqp_cycles import clients_of_cycles
from tests.simulation.amqp_delays import delaying_clients
from tests.simulation.amqp_ends import clients_of_ends
from tests.simulation.amqp_exchanges import clients_of_exchanges
from tests.simulation.amqp_heartbeats import beating_clients
from tests.simulation.amqp_limits import limited_clients
from tests.simulation.amqp_owners import owners
from tests.simulation.amqp_schedules import scheduling_clients
from tests.simulation.book import Book
from tests.simulation.clock import CLOCK
from tests.simulation.crossing import clients_that_cross
from tests.simulation.definitions_ledger import DefinitionsLedger
from tests.simulation.faults import FAULTS, NEXT_FAULT_S, RARE_FAULTS, Faults
from tests.simulation.follower import OFTEN_SHARE, SHARE as FOLLOWER_SHARE, Follower
from tests.simulation.governor import governed_clients
from tests.simulation.http_clients import HTTPClient
from tests.simulation.ledger import RetainedLedger, TopicLedger
from tests.simulation.links import SHARE as LINKS_SHARE, Other
from tests.simulation.mqtt_clients import Retainer, Testator, TopicPublisher, TopicSubscriber, Watcher
from tests.simulation.mqtt_flow import flow_of
from tests.simulation.mqtt_options import clients_of_options
from tests.simulation.network import HTTP_PORT, Network
from tests.simulation.process import Machine
from tests.simulation.queue_ledger import TRAITS, QueueLedger
from tests.simulation.steering import steer_http
from tests.simulation.stream_ledger import StreamLedger
from tests.simulation.visits import Visits
from tests.simulation.world import World

STORM_S = 12.0
# Within so long after the last fault every client is answered, and everything is delivered.
CALM_S = 60.0
LOOK_S = 0.02  # between two looks whether all is quiet
STOP_S = 60.0
LOOKS_S = (1e-6, 1e-6, 20e-6, 300e-6)  # what a look at the clock costs: how fast the machine is
LAST_JUMP_S = 1e6

# What clients may do beside publishing and acking, and how many traits a queue has.
OPTIONAL = sorted({*OF_PUBLISHERS, *OF_CONSUMERS, "tx"})
FEW = (0, 0, 1, 2, 3)
FLOW_SHARE = 0.2
HTTP_SHARE = 0.15
GROUPED_SHARE = 0.15

# The clients of a topic, by the first letter of its name.
OF_TOPICS = {
    "t": (TopicPublisher, TopicSubscriber), "r": (Retainer, Watcher), "w": (Testator, TopicSubscriber)}


def name_of(part):
    """A part's name."""
    return part if isinstance(part, str) else getattr(part, "name", None) or part.__name__.strip("_")


class Reduction(NamedTuple):
    """What is left out of a seed: parts by their names, all but so many faults, the end of the storm.
    ``only``: the parts that it consists of, drawn or not, if any are named.
    """

    without: frozenset = frozenset()
    only: frozenset = frozenset()
    faults: int | None = None
    storm_s: float = STORM_S

    def has(self, name):
        """Whether this part is there, if the seed has drawn it or it is one of ``only``."""
        return name not in self.without and (not self.only or name in self.only)

    def __str__(self):
        return "".join((
            f" --only {','.join(sorted(self.only))}" if self.only else "",
            f" --without {','.join(sorted(self.without))}" if self.without else "",
            f" --faults {self.faults}" if self.faults is not None else "",
            f" --storm {self.storm_s:g}" if self.storm_s != STORM_S else ""))


class Scenario(Faults):
    """One seed. ``parts``: the names of what a Reduction may leave out of it: kinds of faults, queues, and
    topics. ``exercised`` as in Ledger.
    """

    def __init__(self, seed, folder, reduction=Reduction(), out=None):
        self.world = world = World(seed, out)
        self.exercised = Counter()
        self._looks_at_s = 0.0
        self.parts = []
        self._reduction = reduction
        self._random = world.random("scenario")
        CLOCK.look_s = self._random.choice(LOOKS_S)
        self._network = Network(world)
        self.machine = Machine(world, self._network, folder)
        # Some kinds of faults hide others: each seed has its own.
        self._kinds = self._some(FAULTS, 1 + self._random.randrange(len(FAULTS)))
        for kind, share in RARE_FAULTS.items():
            self._kinds += self._left([kind], world.random(name_of(kind)).random() < share)
        if self._left(["follower"], world.random("follower").random() < FOLLOWER_SHARE):
            self.machine.follower = Follower(world, folder)
            self._kinds += self._left([Faults._lose_machine])
            if self._left(["pauses"], False):
                self.machine.follower.pause_share = OFTEN_SHARE
        topics = self._left([TopicLedger(world, "t0")], self._random.choice((0, 1)))
        for kind, name in (RetainedLedger, "r0"), (TopicLedger, "w0"):
            topics += self._left([kind(world, name)], world.random(name).random() < 0.3)
        self._book = Book(world)
        self._streams = [StreamLedger(world, name, self._book) for name in self._left(
            ["s0"], world.random("streams").choice((0, 0, 1)))]
        self.clients = self._amqp_clients() + [
            kind(world, self._network, f"{kind.__name__.lower()}-{ledger.name}", ledger)
            for ledger in topics for kind in OF_TOPICS[ledger.name[0]]
        ]
        flows = []
        if self._left(["f0"], world.random("flow").random() < FLOW_SHARE):
            flows, clients = flow_of(world, self._network, "f0", self._left)
            self.clients += clients
        clients, options = clients_of_options(world, self._network, self._left)
        self.clients += clients
        clients, crossed = clients_that_cross(world, self._network, self._book, self._left)
        self.clients += clients
        self.clients += clients_with_manners(world, self._network, self._book, self._left)
        clients, routers = clients_of_exchanges(world, self._network, self._book, self._left)
        self.clients += clients
        self.clients += owners(world, self._network, self._book, self._left)
        self.clients += delaying_clients(world, self._network, self._book, self._left)
        clients, schedules = scheduling_clients(world, self._network, self._book, self._left)
        self.clients += clients
        self.clients += limited_clients(world, self._network, self._book, self._left)
        self.clients += clients_of_ends(world, self._network, self._book, self._left)
        self.clients += clients_of_cycles(world, self._network, self._book, self._left)
        clients, heartbeats = beating_clients(world, self._network, self._book, self._left)
        self.clients += clients
        operators = self._operators()
        for ledger in operators:
            self.clients.append(HTTPClient(world, self._network, ledger.name, ledger))
            if Faults._cut_power_behind_answers in self._kinds:
                self.clients[-1].may_purge()
        clients, governed = governed_clients(world, self._network, self._left)
        self.clients += clients
        if operators or governed:
            steer_http()
            self.machine.doors["http"] = HTTP_PORT
        self.ledgers = [
            *self._book.queues.values(), *self._streams, *topics, *flows, *options, *crossed, *operators,
            *routers, *governed, *heartbeats, *schedules]
        self._others = [
            Other(self, self._network, folder, reduction, self._left)
            for _ in self._left(["other"], world.random("other").random() < LINKS_SHARE)]
        for other in self._others:
            self.clients += other.clients
            self.ledgers += other.ledgers

    def _left(self, parts, is_drawn=True):
        """Of parts, things with names, those of this run: that the seed has drawn, or that it consists of."""
        parts = {name_of(part): part for part in parts if is_drawn or self._reduction.only}
        parts = {name: part for name, part in parts.items() if self._reduction.has(name)}
        self.parts += [name for name in parts if name not in self.parts]
        return list(parts.values())

    def _some(self, parts, count):
        """As _left(), of so many that are drawn."""
        drawn = self._random.sample(parts, count)
        return self._left(parts if self._reduction.only else drawn)

    def _operators(self):
        """The ledgers of HTTP clients, in few seeds: such a client takes much of the processor."""
        random = self.world.random("http")  # another one would change all seeds
        is_drawn = random.random() < HTTP_SHARE
        names = self._left((f"http{number}" for number in range(random.choice((1, 1, 2)))), is_drawn)
        return [DefinitionsLedger(self.world, name) for name in names]

    def _give_groups(self, queues):
        """Some queues have groups, in a part of the seeds."""
        random = self.world.random("groups of queues")  # another one would change all seeds
        for queue in queues:
            if self._left([f"{queue.name}-groups"], random.random() < GROUPED_SHARE):
                queue.traits = queue.traits - {"priority"} | {"grouped"}
                if self.world.random(f"limit of groups of {queue.name}").random() < 0.5:
                    queue.traits |= {"one of a group"}

    def _amqp_clients(self):
        random, book = self._random, self._book
        uses = self._some(OPTIONAL, random.randrange(len(OPTIONAL) + 1))
        names = self._left(f"q{number}" for number in range(random.choice((1, 2, 3))))
        queues = [
            QueueLedger(self.world, name, book, self._some(list(TRAITS), random.choice(FEW)))
            for name in names
        ]
        self._give_groups(queues)
        for queue, following in zip(queues, [*queues[1:], None]):
            if "retries" in queue.traits:
                queue.dies_to = QueueLedger(
                    self.world, f"{queue.name}-waiting", book, ["expiring"], dies_to=queue)
            elif "letters" in queue.traits:
                queue.dies_to = random.choice((following, None)) or QueueLedger(
                    self.world, f"{queue.name}-letters", book)
            if "copies" in queue.traits:
                queue.copies_to = following
        for queue in book.queues.values():
            self.world.say(queue.name, " ".join(sorted(queue.traits)) or "is plain")
        roles = []
        for queue in list(book.queues.values()):
            if queue in queues:
                roles.append(self._role(queue, None, OF_PUBLISHERS, uses))
            if not (queue.dies_to in queues and queue.dies_to.dies_to is queue):
                consumers = random.choice((1, 1, 2))
                queue.is_sole = consumers == 1
                roles += [self._role(None, queue, OF_CONSUMERS, uses) for _ in range(consumers)]
        for stream in self._streams:
            roles.append(self._role(stream, None, OF_PUBLISHERS, uses))
            roles += [
                self._role(None, stream, OF_READERS, uses, False) for _ in range(random.choice((1, 2)))]
        random.shuffle(roles)
        count = random.randrange(1, len(roles) + 1) if roles else 0
        return [
            AMQPClient(self.world, self._network, f"client-{number}", book, roles[number::count])
            for number in range(count)
        ]

    def _role(self, publishes, consumes, actions, uses, may_get=True):
        """Of a channel."""
        random = self._random
        has_consumer = not may_get or random.random() < 0.8
        is_tx = may_get and "tx" in uses and random.random() < 0.5
        actions = [name for name in actions if name in uses]
        if is_tx:
            actions += "commit", "roll_back"
            publishes = publishes or consumes
        if consumes:
            actions += ["ack_multiple", "get"] if may_get else ["ack_multiple"]
        if publishes:
            actions.append("publish")
        return Channel, publishes, consumes, is_tx, has_consumer, actions

    def run(self):
        """Live through it. What is wrong is in ``world.findings``."""
        world = self.world
        self._start()
        for other in self._others:
            other.begin()
        if self._kinds:
            world.after(self._random.choice(NEXT_FAULT_S), self._go_wrong)
        if world.run(self._reduction.storm_s, lambda: bool(world.findings)):
            return
        self._calm()
        if not world.run(world.now_s + CALM_S, self._is_quiet):
            self._judge()
        self._end()

    def _ended(self):
        if self._process.has_stopped:
            self._book.orderly.add(self._book.ends)
        self._book.ends += 1
        super()._ended()

    # the judgement

    def _calm(self):
        self.world.say("world", "is calm")
        for client in self.clients:
            client.is_calm = True
        for stream in self._streams:
            stream.is_calm = True
        self._network.calm()
        for other in self._others:
            other.calm()
        if CLOCK.jumps:
            CLOCK.jump(LAST_JUMP_S - CLOCK.jump_s)  # everything that waits for a time is due
        self._process.dies_at = self.machine.tells = None
        self.machine.weather.clear_up()
        process = self._process
        is_tended = self.world.random("calm").random() < 0.5 and not process.has_failed_folder
        if not process.is_ready or process.has_failed_disk and not is_tended:
            process.die("is killed")
            self._start()
        elif process.has_failed_disk:
            process.tend()

    def _is_quiet(self):
        if self.world.now_s < self._looks_at_s:
            return False
        self._looks_at_s = self.world.now_s + LOOK_S
        return bool(self.world.findings) or (
            all(ledger.is_complete() for ledger in self.ledgers)
            and all(client.is_open and client.waits_since_s is None for client in self.clients))

    def _judge(self):
        for ledger in self.ledgers:
            ledger.check_complete()
        for client in self.clients:
            if not client.is_open or client.waits_since_s is not None:
                self.world.find(f"{client.name} has waited since {client.waits_since_s}")

    def _end(self):
        world = self.world
        if world.findings:
            return
        for other in self._others:
            if not other.end():
                return
        there = [client for other in self._others for client in other.clients_there]
        clients = [client for client in self.clients if client not in there]
        visits = Visits(world, self._network, self._book, clients, self.exercised)
        visits.run(self._process)
        self.exercised["copies compared"] += self._process.compare_copy()
        if world.findings:
            return
        self._process.stop()
        if not world.run(world.now_s + STOP_S, lambda: not self._process.is_alive):
            world.find("the broker does not stop")
            return
        self._start()
        visits.compare(self._process)
