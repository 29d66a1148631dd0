"""Scenario: what a seed makes of the world: a machine, its clients, what goes wrong, and the judgement.

A stormy time, in which the broker is killed, loses power, stops in order and has a bad disk, at moments of
the seed; then a calm one, after which everybody must have been answered and everything delivered; then an
orderly end and a last boot, after which nothing may come back.
"""
from typing import NamedTuple

from tests.simulation.amqp_clients import Consumer, Publisher
from tests.simulation.clock import CLOCK
from tests.simulation.ledger import QueueLedger, TopicLedger
from tests.simulation.mqtt_clients import TopicPublisher, TopicSubscriber
from tests.simulation.network import Network
from tests.simulation.process import Machine
from tests.simulation.world import World

STORM_S = 12.0
# Within so long after the last fault every client is answered, and everything is delivered.
CALM_S = 60.0
STOP_S = 60.0
LAST_BOOT_S = 5.0
LOOKS_S = (1e-6, 1e-6, 20e-6, 300e-6)  # what a look at the clock costs: how fast the machine is
NEXT_FAULT_S = (0.05, 0.5, 2.0)
MOMENTS = (1, 5, 30, 200)  # before a kill in front of a call
FULL_S = (0.01, 0.3, 2.0)
JUMPS_S = (-3600.0, -1.0, 1.0, 3600.0)


class Reduction(NamedTuple):
    """What is left out of a seed: parts by their names, all but so many faults, the end of the storm."""

    without: frozenset = frozenset()
    faults: int | None = None
    storm_s: float = STORM_S

    def __str__(self):
        return "".join((
            f" --without {','.join(sorted(self.without))}" if self.without else "",
            f" --faults {self.faults}" if self.faults is not None else "",
            f" --storm {self.storm_s:g}" if self.storm_s != STORM_S else ""))


class Scenario:
    """One seed. ``parts``: the names of what a Reduction may leave out of it: kinds of faults, queues, and
    topics.
    """

    def __init__(self, seed, folder, reduction=Reduction(), out=None):
        self.world = world = World(seed, out)
        self.faults = 0
        self.parts = []
        self._reduction = reduction
        self._random = world.random("scenario")
        CLOCK.look_s = self._random.choice(LOOKS_S)
        self._network = Network(world)
        self.machine = Machine(world, self._network, folder)
        self._process = None
        # Some kinds of faults hide others: each seed has its own.
        self._kinds = self._left(self._random.sample(FAULTS, 1 + self._random.randrange(len(FAULTS))))
        queues = self._left(
            QueueLedger(world, f"q{number}") for number in range(self._random.choice((1, 2))))
        topics = self._left(
            TopicLedger(world, f"t{number}") for number in range(self._random.choice((0, 1))))
        self.ledgers = queues + topics
        self.clients = [
            kind(world, self._network, f"{kind.__name__.lower()}-{ledger.name}", ledger)
            for kinds, ledgers in (
                ((Publisher, Consumer), queues), ((TopicPublisher, TopicSubscriber), topics))
            for ledger in ledgers for kind in kinds
        ]

    def _left(self, parts):
        """Those that are not left out, of things with names."""
        parts = {getattr(part, "name", None) or part.__name__.strip("_"): part for part in parts}
        self.parts += parts
        return [part for name, part in parts.items() if name not in self._reduction.without]

    def run(self):
        """Live through it. What is wrong is in ``world.findings``."""
        world = self.world
        self._start()
        if self._kinds:
            world.after(self._random.choice(NEXT_FAULT_S), self._go_wrong)
        world.run(self._reduction.storm_s)
        self._calm()
        if not world.run(world.now_s + CALM_S, self._is_quiet):
            self._judge()
        self._end()

    # what goes wrong

    def _start(self):
        self._process = self.machine.start(self._ended)
        weather = self.machine.weather
        if weather.slow or weather.failing:  # since before it began
            self._tell_of_illness(bool(weather.failing))

    def _ended(self):
        for ledger in self.ledgers:
            ledger.process_ended()

    def _go_wrong(self):
        storm_is_over = self.world.now_s >= self._reduction.storm_s or self.faults == self._reduction.faults
        if not storm_is_over and not self.world.findings:
            self.faults += 1
            if self._process.is_alive:
                self._random.choice(self._kinds)(self)
            else:
                self._start()
            self.world.after(self._random.random() * self._random.choice(NEXT_FAULT_S), self._go_wrong)

    def _kill(self):
        self._process.die("is killed")

    def _kill_at_a_call(self):
        self._process.dies_at = self._process.moments + 1 + self._random.randrange(
            self._random.choice(MOMENTS))

    def _cut_power(self):
        self.machine.cut_power()
        for ledger in self.ledgers:
            ledger.power_was_cut()

    def _stop(self):
        if self._process.is_ready:
            self._process.stop()

    def _jump(self):
        CLOCK.jump_s += self._random.choice(JUMPS_S)
        self.world.say("clock", f"jumps to {CLOCK.jump_s:+.0f} s")

    def _fill_disk(self):
        self.world.say("disk", "is full")
        self.machine.weather.is_full = True
        self.world.after(self._random.choice(FULL_S), self._make_room)

    def _make_room(self):
        self.world.say("disk", "has room")
        self.machine.weather.is_full = False

    def _slow_flush(self):
        self.world.say("disk", "is slow")
        self.machine.weather.slow = 1
        self._tell_of_illness(False)

    def _tell_of_illness(self, fails):
        for ledger in self.ledgers:
            ledger.disk_is_ill(fails)

    def _fail_flush(self):
        self.world.say("disk", "is to fail")
        self.machine.weather.failing = self._random.choice((1, 1, 3))
        self._tell_of_illness(True)

    # the judgement

    def _calm(self):
        self.world.say("world", "is calm")
        for client in self.clients:
            client.is_calm = True
        self._network.calm()
        self._process.dies_at = None
        self.machine.weather.clear_up()
        if not self._process.is_ready or self._process.has_failed_disk:
            self._process.die("is killed")
            self._start()

    def _is_quiet(self):
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
        self._process.stop()
        if not world.run(world.now_s + STOP_S, lambda: not self._process.is_alive):
            world.find("the broker does not stop")
            return
        self._start()
        world.run(world.now_s + LAST_BOOT_S)


FAULTS = (
    Scenario._kill, Scenario._kill_at_a_call, Scenario._kill_at_a_call, Scenario._cut_power, Scenario._stop,
    Scenario._jump, Scenario._fill_disk, Scenario._slow_flush, Scenario._fail_flush,
)
