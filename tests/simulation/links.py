"""Links: a second machine with a broker of its own, and shovels and federation links between the two, or
within one; in a share of the seeds.

The second machine has faults of its own (faults.Faults), and the network between the two is cut for a while.
An operator sets each link as the handlers of HTTP do, by the parameters of its virtual host, takes it back,
and sets it again. Clients publish at its source, and consume at its destination (link_ledger).
"""
from functools import partial

from gomq_py.amqp.wire import methods
from gomq_py.content.properties import Properties
from tests.simulation.amqp_channel import Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.book import Book
from tests.simulation.faults import FAULTS, NEXT_FAULT_S, Faults
from tests.simulation.link_ledger import HEARTBEAT_S, ON_CONFIRM, LinkLedger
from tests.simulation.process import Machine
from tests.simulation.steering import steer_links

SHARE = 0.15  # of seeds
OTHER_PORT = 5673
HOSTS = ("127.0.0.1", "other.example")
MODES = (ON_CONFIRM, ON_CONFIRM, "on-publish", "no-ack")
KINDS = ("shovel", "shovel", "exchange", "queue")
PREFETCHES = (None, 1, 10)
DELAYS_S = (None, 1, 2)  # before a link connects again
STOP_S = 60.0
IDLE_S = 4 * HEARTBEAT_S  # a peer from whom a broker hears nothing is given up in less
CUTS_S = (0.1, 1.0, 4.0)
LOOKS_S = (0.02, 0.2)
# How often an operator who looks takes a link back, and how long it is gone.
DELETES_SHARE, GONE_S = 0.05, (0.01, 0.5, 2.0)
WRITES = ("publish", "close_channel", "close_connection")
READS = ("ack", "ack_multiple", "qos", "cancel", "close_channel", "close_connection")


class Other(Faults):
    """The second machine, its links, and what goes wrong there and on the way."""

    def __init__(self, scenario, network, folder, reduction, left):
        world = self.world = scenario.world
        self._random = world.random("links")
        self._network, self._reduction = network, reduction
        self.machine = Machine(world, network, folder, "b")
        self.machine.doors = {"amqp": OTHER_PORT}
        kinds = [*(fault for fault in FAULTS if fault is not Faults._jump), Other._cut_network]
        self._kinds = left(self._random.sample(kinds, 1 + self._random.randrange(len(kinds))))
        steer_links()
        self._book = Book(world)
        self.ledgers, self.clients, self.clients_there, self.operators = [], [], [], []
        for name in left(f"l{number}" for number in range(self._random.choice((1, 1, 2, 3)))):
            self._make_link(name, (scenario, self))

    def _make_link(self, name, nodes):
        random = self._random
        kind, mode = random.choice(KINDS), random.choice(MODES)
        source, target = random.sample(nodes, 2)
        if kind == "shovel" and random.random() < 0.25:
            target = source
        ledger = LinkLedger(self.world, name, self._book, kind, mode, [source.machine, target.machine])
        at = random.choice((source, target)) if kind == "shovel" else target
        what = (shovel if kind == "shovel" else federation)(
            ledger, random, self._uri(source, at), self._uri(target, at))
        ledger.link = Operator(self.world, at, ledger, what)
        way = " to ".join(str(port_of(node)) for node in (source, target))
        self.world.say(name, f"is a {kind} from {way} at {port_of(at)}: {what}")
        self.ledgers.append(ledger)
        self.operators.append(ledger.link)
        for node, *role in (
                (source, LinkChannel, ledger.source, None, False, True, WRITES),
                (target, LinkChannel, None, ledger, False, True, READS)):
            self.clients.append(AMQPClient(
                self.world, self._network, f"link-{len(self.clients)}", self._book, [role], port_of(node)))
            if node is self:
                self.clients_there.append(self.clients[-1])

    def _uri(self, node, at):
        """Of a node, for a link that runs at one."""
        if node is at and self._random.random() < 0.8:
            return "amqp://"
        return f"amqp://guest:guest@{self._random.choice(HOSTS)}:{port_of(node)}?heartbeat={HEARTBEAT_S}"

    # what the scenario does with it

    def begin(self):
        """Boot, and let it go wrong."""
        self._start()
        if self._kinds:
            self.world.after(self._random.choice(NEXT_FAULT_S), self._go_wrong)

    def calm(self):
        """All faults are over."""
        self._network.cut_until_s = 0.0
        self._process.dies_at = None
        self.machine.weather.clear_up()
        if not self._process.is_ready or self._process.has_failed_disk:
            self._process.die("is killed")
            self._start()
        for operator in self.operators:
            operator.is_calm = True

    def end(self):
        """Leave the links idle, take them back, and end the broker, in any order. Returns whether nothing is
        wrong.
        """
        before = [operator.reconnects() for operator in self.operators]
        self.world.run(self.world.now_s + IDLE_S, lambda: bool(self.world.findings))
        for ledger, operator, count in zip(self.ledgers, self.operators, before, strict=True):
            ledger.stays_up(operator.reconnects() - count)
        steps = [self._take_back, self._stop_and_wait]
        self._random.shuffle(steps)
        for client in self.clients_there:
            client.depart(in_order=True)
        for step in steps:
            step()
        return not self.world.findings

    def _take_back(self):
        for operator in self.operators:
            operator.take_back()
        if not self._wait(lambda: all(operator.is_done() for operator in self.operators)):
            self.world.find("a link cannot be taken back")

    def _stop_and_wait(self):
        self._process.stop()
        if not self._wait(lambda: not self._process.is_alive):
            self.world.find("the second broker does not stop")

    def _wait(self, is_over):
        return self.world.run(self.world.now_s + STOP_S, is_over)

    def _cut_network(self):
        for_s = self._random.choice(CUTS_S)
        self._network.cut(for_s, self._random.choice((0.0, 0.5)))
        for ledger in self.ledgers:
            ledger.disturb()
            self.world.after(for_s, ledger.disturb)


def port_of(node):
    """Where its broker listens."""
    return node.machine.doors["amqp"]


def shovel(ledger, random, source, target):
    """[(component, name, value)] of it."""
    value = {"src-uri": source, "src-queue": ledger.source.name, "dest-uri": target,
             "dest-queue": ledger.name, "ack-mode": ledger.mode}
    return [("shovel", ledger.source.name, value | _options(random, "src-prefetch-count"))]


def federation(ledger, random, source, _target):
    """The same, of an upstream and a policy."""
    name = ledger.source.name
    return [
        ("federation-upstream", name, {
            "uri": source, "ack-mode": ledger.mode} | _options(random, "prefetch-count")),
        ("policy", name, {
            "pattern": f"^{name}$", "definition": {"federation-upstream": name}, "priority": 0,
            "apply-to": f"{ledger.kind}s"}),
    ]


def _options(random, prefetch):
    drawn = {prefetch: random.choice(PREFETCHES), "reconnect-delay": random.choice(DELAYS_S)}
    return {key: value for key, value in drawn.items() if value is not None}


class Operator:
    """Sets a link at its node, and takes it back for a while. What was not answered is asked for again."""

    def __init__(self, world, node, ledger, what):
        self.world = world
        self.is_calm = False
        self._node = node
        self._ledger = ledger
        self._what = what
        self._random = world.random(f"operator of {ledger.source.name}")
        self._is_set = None  # as it was answered; None: nobody knows
        self._asks = None  # the process that was asked
        self._seen = None  # the process that was seen to have it
        self._wants = True
        self._look_later()

    def is_running(self):
        """Whether the link says so."""
        return bool(self._is_set and self._wants) and self.state() == "running"

    def take_back(self):
        """For good."""
        self._wants, self._is_set = False, None

    def is_done(self):
        """Whether it is as it should, or its broker has ended."""
        return self._is_set is self._wants or not self._node.process.is_alive

    def state(self):
        """What the link says."""
        process = self._node.process
        if not process.is_ready or process.node.broker is None:
            return "the broker does not run"
        states = [link.state for link in self._links()]
        return states[0] if states else None

    def reconnects(self):
        """How often it has connected anew."""
        return sum(link.described()["reconnects"] for link in self._links())

    def _links(self):
        """Of the process that runs; at most one."""
        node = self._node.process.node
        if self._ledger.kind == "shovel":
            shovel = node.shovels.find("/", self._ledger.source.name)
            return [shovel] if shovel else []
        return [link for link in node.federation.links("/") if link.name == self._ledger.source.name]

    def _look_later(self):
        self.world.after(self._random.choice(LOOKS_S), self._look)

    def _look(self):
        process = self._node.process
        if self._asks is not None and self._asks is not process:
            self._asks = None  # nobody will answer
        if process.is_ready and self._asks is None:
            if self._is_set is not self._wants:
                self._asks = process
                process.spawn(self._ask, process, self._wants)
            elif self._seen is not process:
                self._seen = process
                self._check(process)
            elif self._wants and self._may_delete():
                self._wants, self._is_set = False, None
                self.world.after(self._random.choice(GONE_S), self._want)
        self._look_later()

    def _may_delete(self):
        """Not of an exchange: what waits for it goes, too, as docs/federation.md says."""
        return (
            self._ledger.kind != "exchange" and not self.is_calm and self._random.random() < DELETES_SHARE)

    def _want(self):
        self._ledger.is_to_come()
        self._wants, self._is_set = True, None

    def _ask(self, process, is_set):
        """In a greenlet of the process."""
        node = process.node
        if node.broker is None:
            return
        parameters, vhost = node.broker.parameters, node.broker.vhosts["/"]
        self._say("sets it" if is_set else "takes it back")
        self._ledger.disturb()
        try:
            for component, name, value in self._what if is_set else self._what[::-1]:
                if is_set:
                    parameters.set(vhost, component, name, value, "guest")
                else:
                    parameters.clear(vhost, component, name)
        except OSError as error:
            self._answered(process, is_set, error)
        else:
            node.durability.when_safe(partial(self._answered, process, is_set))

    def _answered(self, process, is_set, error):
        self._asks = None
        if error is None and is_set is self._wants and process is self._node.process:
            self._say("is answered")
            self._is_set, self._seen = is_set, process
            if not is_set:
                self._ledger.has_gone()

    def _check(self, process):
        """After a boot it is as it was answered."""
        self._ledger.exercised["links kept"] += 1
        there = process.node.broker.vhosts["/"].parameters
        for component, name, value in self._what:
            if (there.get((component, name)) == value) is not self._wants:
                self._ledger.find(f"{component} {name} is {there.get((component, name))} after a boot")

    def _say(self, what):
        self.world.say(f"operator-{self._ledger.source.name}", what)


class LinkChannel(Channel):
    """Publishes to what a link takes from, or consumes what it brings."""

    def _declare(self, ledgers, declared):
        exchange = (self._publishes or self._consumes.source).exchange
        if not exchange:
            super()._declare(ledgers, declared)
        elif not declared:
            self._ask(methods.ExchangeDeclare(exchange=exchange, type="fanout", durable=True),
                      methods.ExchangeDeclareOk)
            if self._consumes is not None:
                super()._declare(ledgers, declared)
                bind = methods.QueueBind(queue=self._consumes.name, exchange=exchange)
                self._ask(bind, methods.QueueBindOk)

    def _publish_one(self):
        source = self._publishes
        source.link.publishes()
        self._send_message([source], methods.BasicPublish(
            exchange=source.exchange, routing_key=source.name, mandatory=bool(source.exchange)),
            Properties(delivery_mode=2), {})

    def _returned(self, method, properties, body):
        message = self._book.message_of(body)
        if message is not None and message.queues:
            self._publishes.link.comes_back(message)
            message.queues = []
        super()._returned(method, properties, body)

    HANDLERS = {**Channel.HANDLERS, methods.BasicReturn: _returned}

    def _drain(self):
        super()._drain()
        if self._publishes is not None and self._publishes.link.wants_more() and not self._unconfirmed:
            self._publishes.link.late += 1
            self._publish_one()
