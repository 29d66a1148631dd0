"""Faults that a storm consists of. Each is a function of the Scenario, which it hits at once; most end by
themselves after some seconds.
"""
from gomq_py.cluster import identity
from gomq_py.cluster.core.records import InSyncRecord, decoded
from tests.node_simulation.network import ETCD

MOMENTS = (1, 5, 30, 200)  # before a kill in front of a call
FOR_S = (0.5, 2.0, 6.0)


def kill(scenario):
    """A process is killed."""
    process = _process(scenario)
    if process.is_alive:
        process.die("is killed")


def kill_at_a_call(scenario):
    """A process is killed in front of a call of its disk, or of a send."""
    process = _process(scenario)
    process.dies_at = process.moments + 1 + scenario.random.randrange(scenario.random.choice(MOMENTS))


def kill_all(scenario):
    """All processes are killed."""
    for node in scenario.nodes:
        if node.process.is_alive:
            node.process.die("is killed")


def cut_power(scenario):
    """A machine loses its power."""
    scenario.random.choice(scenario.nodes).lose_power()


def cut_all_power(scenario):
    """All machines lose their power at one moment."""
    for node in scenario.nodes:
        node.lose_power()


def cut_power_at_a_call(scenario):
    """A machine loses its power in front of a call of its disk, or of a send."""
    process = _process(scenario)
    process.loses_power_at = process.moments + 1 + scenario.random.randrange(
        scenario.random.choice(MOMENTS))


def cut_power_of_the_elected(scenario):
    """The next node that is elected loses its power while it reads its folder, or soon after that."""
    scenario.elected_loses_power = True
    scenario.etcd.model.delete("leader")


def end(scenario):
    """A process ends in order: a leader hands over first."""
    process = _process(scenario)
    if process.is_alive and process.node is not None and process.node.role is not None:
        process.end()


def hand_over(scenario):
    """An operator asks for another leader."""
    for node in scenario.nodes:
        if node.process.leads:
            node.process.hand_over()


def wipe(scenario):
    """A follower, while another node is in sync, comes back with an empty folder."""
    node = scenario.random.choice(scenario.nodes)
    record = decoded(scenario.etcd.model.kept.get("isr"), InSyncRecord.decode)
    others = [identity.read(other.disk.root) for other in scenario.nodes if other is not node]
    if record is not None and node.process.leadership is None and any(
            found is not None and found.node_id.hex() in record.members for found in others):
        node.wipe()


def stop(scenario):
    """A process is stopped, and goes on."""
    process = _process(scenario)
    if process.is_alive:
        process.stall(scenario.random.choice((0.3, 1.0, 3.0, 7.0)))


def cut_pair(scenario):
    """Two nodes do not hear each other, or one does not hear the other."""
    source, target = scenario.random.sample(scenario.nodes, 2)
    _cut(scenario, source.name, target.name)


def cut_from_etcd(scenario):
    """A node does not reach etcd, or hears no answer."""
    _cut(scenario, *scenario.random.sample([scenario.random.choice(scenario.nodes).name, ETCD], 2))


def isolate(scenario):
    """A node reaches nobody."""
    name = scenario.random.choice(scenario.nodes).name
    for_s = scenario.random.choice(FOR_S)
    for other in [node.name for node in scenario.nodes] + [ETCD]:
        if other != name:
            scenario.network.cut_way(name, other, for_s)
            scenario.network.cut_way(other, name, for_s)


def reset(scenario):
    """Links end."""
    scenario.network.reset_some(scenario.random.choice((0.3, 1.0)))


def refuse(scenario):
    """etcd has no majority for a while."""
    scenario.etcd.model.is_refused = True
    scenario.world.after(
        scenario.random.choice(FOR_S), setattr, scenario.etcd.model, "is_refused", False)


def lose(scenario):
    """Requests and answers of etcd are lost."""
    scenario.etcd.loss = scenario.random.choice((0.1, 0.3, 0.6))
    scenario.world.after(scenario.random.choice(FOR_S), setattr, scenario.etcd, "loss", 0.0)


def slow_down(scenario):
    """What is on its way to etcd, or back, takes long."""
    scenario.etcd.slow_s = scenario.random.choice((0.3, 1.0, 4.0))
    scenario.world.after(scenario.random.choice(FOR_S), setattr, scenario.etcd, "slow_s", 0.0)


def hold(scenario):
    """Transactions arrive at the worst time."""
    scenario.etcd.holds = True
    scenario.world.after(scenario.random.choice(FOR_S), setattr, scenario.etcd, "holds", False)


def end_leases(scenario):
    """etcd ends leases before their time, all or one."""
    leases = scenario.etcd.model.leases()
    for lease in leases if scenario.random.random() < 0.5 else leases[:1]:
        scenario.etcd.model.end_lease(lease)


def depose(scenario):
    """etcd ends all leases, and a node hears nothing of it for long."""
    name = scenario.random.choice(scenario.nodes).name
    for way in (name, ETCD), (ETCD, name):
        scenario.network.cut_way(*way, scenario.random.choice(FOR_S))
    for lease in scenario.etcd.model.leases():
        scenario.etcd.model.end_lease(lease)


def delete_leader(scenario):
    """A node that is refused at the leader's address has deleted it; the lease goes on."""
    scenario.etcd.model.delete("leader")


def slow_disk(scenario):
    """Some of the next flushes of a node take 20 s."""
    scenario.random.choice(scenario.nodes).weather.slow = scenario.random.choice((1, 2))


def _process(scenario):
    return scenario.random.choice(scenario.nodes).process


def _cut(scenario, source, target):
    for_s = scenario.random.choice(FOR_S)
    scenario.network.cut_way(source, target, for_s)
    if scenario.random.random() < 0.6:
        scenario.network.cut_way(target, source, for_s)


# Faults by which `leader` goes before its leader knows that its time is over.
ENDS_LEASES = {"end_leases", "depose", "delete_leader", "cut_power_of_the_elected"}
FAULTS = {
    function.__name__: function for function in (
        end, hand_over, kill, kill_at_a_call, kill_all, cut_power, cut_all_power, cut_power_at_a_call,
        cut_power_of_the_elected, stop, cut_pair, cut_from_etcd, isolate, reset, refuse, lose, slow_down,
        hold, end_leases, depose, delete_leader, slow_disk, wipe)
}
