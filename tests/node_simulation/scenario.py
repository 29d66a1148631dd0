"""Scenario: what a seed makes of the world: three nodes, etcd, clients, what goes wrong, and the judgement.

In a storm processes and machines fail and the network is cut; then all that ends, and every node has to be in
sync, publishers are answered, and folders are equal once nothing is published.
"""
from gomq_py.storage.disk.data_dir import OF_THIS_NODE
from tests.node_simulation.clients import ConsumingChannel, PublishingChannel, QueueClient
from tests.node_simulation.etcd import Etcd
from tests.node_simulation.faults import ENDS_LEASES, FAULTS
from tests.node_simulation.judge import Judge
from tests.node_simulation.network import Ways
from tests.node_simulation.node import AMQP_PORT, Node
from tests.simulation.clock import CLOCK
from tests.simulation.world import World
from tests.support.mirror import folder_content

START_S, STORM_S, RECOVERY_S, QUIET_S = 1.5, 10.0, 90.0, 10.0
NEXT_FAULT_S = (0.3, 1.0, 3.0)
LOOK_S = 0.1
CALM_SHARE = 0.1
BOOT_MOMENTS = 80  # calls of the disk, of a node that is elected, until its doors are open


class Scenario:
    """One seed. What is wrong is in ``world.findings``."""

    def __init__(self, seed, folder, out=None, faults=None):
        self.world = world = World(seed, out)
        self.random = world.random("scenario")
        CLOCK.look_s = self.random.choice((1e-6, 20e-6))
        self.network = Ways(world)
        self.etcd = Etcd(world, self.network)
        self.judge = Judge(world, self.etcd, folder)
        options = {
            "min_isr": self.random.choice((1, 1, 2, 2, 3)), "lease_ttl": self.random.choice((2, 3, 5)),
            "ack_timeout": self.random.choice((1, 3))}
        world.say("world", f"{options}")
        self.nodes = self.judge.nodes = [
            Node(world, self.network, folder, number, self.etcd, options, self._elected, self.judge)
            for number in (1, 2, 3)]
        ports = [AMQP_PORT + number for number in (1, 2, 3)]
        self.publishers = [
            QueueClient(world, self.network, f"publisher{number}", PublishingChannel, self.judge, ports)
            for number in range(self.random.choice((1, 2)))]
        self.consumers = [
            QueueClient(world, self.network, f"consumer{number}", ConsumingChannel, self.judge, ports)
            for number in range(self.random.choice((0, 1, 1)))]
        self.kinds = self.random.sample(sorted(FAULTS), self.random.randint(1, len(FAULTS)))
        self.judge.leases_end_in_time = not ENDS_LEASES.intersection(self.kinds)
        self.faults = 0
        self.elected_loses_power = False  # the next one, while it boots
        self._most_faults = faults
        self._looked_s = 0.0

    def run(self):
        """Live through it."""
        world = self.world
        for node in self.nodes:
            world.after(self.random.random(), node.boot)
        self._go_wrong_later(START_S)
        if world.run(START_S + STORM_S, lambda: bool(world.findings)):
            return
        self._calm()
        confirmed = self.judge.confirmed_count
        if not world.run(world.now_s + RECOVERY_S, lambda: self._has_recovered(confirmed)):
            world.find(f"it has not recovered: {self._state()}")
        for client in self.publishers + self.consumers:
            client.is_calm = True
        if not world.findings and not world.run(world.now_s + QUIET_S, self._is_quiet):
            world.find(f"it is not quiet: {self._state()}, {self._differences()}")
        for process in [] if world.findings else self._leading():
            self.judge.check_folder(process, process.machine.disk.root)

    def _elected(self, process):
        """A node is to lead."""
        if self.elected_loses_power:
            process.loses_power_at = process.moments + 1 + self.random.randrange(BOOT_MOMENTS)
            self.elected_loses_power = False

    def _go_wrong_later(self, after_s=0.0):
        self.world.after(
            after_s + self.random.expovariate(1 / self.random.choice(NEXT_FAULT_S)), self._go_wrong)

    def _go_wrong(self):
        if self.world.now_s < START_S + STORM_S and self.faults != self._most_faults:
            self.faults += 1
            name = self.random.choice(self.kinds)
            self.world.faults[name] += 1
            self.world.say("fault", name)
            FAULTS[name](self)
            self._go_wrong_later()

    def _calm(self):
        self.world.say("world", "is calm")
        self.network.heal()
        self.network.calm()
        self.etcd.calm()
        self.elected_loses_power = False
        for client in self.publishers + self.consumers:
            client.share = CALM_SHARE
        for node in self.nodes:
            node.process.dies_at = node.process.loses_power_at = None
            node.weather.clear_up()

    def _leading(self):
        return [node.process for node in self.nodes if node.process.leads]

    def _look(self):
        """Whether it is time to look again."""
        if self.world.now_s < self._looked_s:
            return False
        self._looked_s = self.world.now_s + LOOK_S
        return True

    def _has_recovered(self, confirmed):
        if self.world.findings:
            return True
        if not self._look():
            return False
        leading = self._leading()
        return (
            len(leading) == 1 and len(leading[0].leadership.in_sync.members) == len(self.nodes)
            and self.judge.confirmed_count > confirmed + 5)

    def _is_quiet(self):
        if self.world.findings:
            return True
        return self._look() and all(
            publisher.is_open and publisher.waits_since_s is None for publisher in self.publishers
        ) and not self._differences()

    def _differences(self):
        first, *others = [folder_content(node.disk.root) for node in self.nodes]
        return sorted({
            name for other in others for name in first.keys() | other.keys()
            if first.get(name) != other.get(name) and name not in OF_THIS_NODE})

    def _state(self):
        said = [f"{self.judge.confirmed_count} confirmed, leading: {[str(one) for one in self._leading()]}"]
        for node in self.nodes:
            membership = node.process.node and node.process.node._membership
            coordination = membership and membership._coordination
            said.append(f"{node.process}: {coordination and coordination.decision}")
        return "; ".join(said)
