"""Faults that a storm consists of. Each is a function of the Scenario, which it hits at once; most end by
themselves after some seconds.
"""
from functools import partial

from gomq_py.cluster.core.overrides import NotPossible, adopt, force_leader
from gomq_py.cluster.core.records import InSyncRecord, decoded
from gomq_py.cluster.core.transactions import CoordinatorError
from tests.cluster_simulation.judge import electable


def kill(world):
    """A process is killed."""
    node = world.random.choice(world.nodes)
    node.kill()
    _boot_later(world, node)


def cut_power(world):
    """A machine loses its power."""
    node = world.random.choice(world.nodes)
    node.cut_power()
    _boot_later(world, node)


def cut_all_power(world):
    """All machines lose their power at one moment."""
    for node in world.nodes:
        node.cut_power()
        _boot_later(world, node)


def wipe(world):
    """A node, not the only one in sync, comes back with an empty folder."""
    if not world.empties_etcd:
        node = world.random.choice(world.nodes)
        node.wipe()
        _boot_later(world, node)


def back_up_and_restore(world):
    """The folder of a node is replaced by an earlier one of itself. It has all that was promised in its
    epoch, or ``isr`` knows that this node has come further: else it cannot be told from what is left after a
    kill.
    """
    random = world.random
    node = random.choice(world.nodes)
    record = decoded(world.etcd.kept.get("isr"), InSyncRecord.decode)
    known = (0, 0) if record is None or node.folder.node_id not in record.members else record.place(
        node.folder.node_id)
    older = [
        folder for folder in node.backups
        if 0 < folder.epoch and (
            (folder.epoch, folder.position) < known
            or folder.epoch < node.folder.epoch and world.judge.has_all(folder, folder.epoch))]
    if older and not world.waits_for_operator:
        node.restore(random.choice(older))
        _boot_later(world, node)
    for other in world.nodes:
        other.back_up()


def fail_flushes(world):
    """The flushes of a follower fail for a while; its process ends soon after, at times with its power."""
    random = world.random
    node = random.choice(world.nodes)
    node.is_disk_ill = True
    world.after(random.uniform(0.1, 1.0), setattr, node, "is_disk_ill", False)
    world.after(random.uniform(0.1, 2.0), random.choice((node.kill, node.restart, node.cut_power)))
    world.after(random.choice((2.2, 5.0)), node.boot)


def transfer(world):
    """An operator has the leader let another node lead, or stops it."""
    for node in world.nodes:
        program = node.program
        if program is not None and program.are_doors_open and program.elector.lease:
            program.promises.refuse(RuntimeError("another node is to lead"))
            if program.elector.lease in world.etcd.leases():
                world.etcd.end_lease(program.elector.lease)
            node.restart()


def force(world):
    """While nobody leads, an operator makes a node lead, in a few seeds; what it lacks is lost."""
    node = world.random.choice(world.nodes)
    folder = node.folder
    if not world.forces or node.program is None or world.waits_for_operator:
        return
    try:
        transaction = force_leader(world.etcd.read(), folder.node_id, folder.cluster, folder.epoch)
        if world.etcd.transact(transaction).is_done:
            world.judge.forced(folder)
            world.note("forced %s", node)
    except (NotPossible, CoordinatorError) as error:
        world.note("not forced: %s", error)


def stop(world):
    """A process is stopped, and goes on."""
    node = world.random.choice(world.nodes)
    if node.program is not None:
        node.program.stop(world.random.choice((0.3, 1.0, 3.0, 7.0)))


def jump(world):
    """A clock jumps."""
    world.random.choice(world.nodes).clock_offset_s += world.random.uniform(-20, 20)


def cut_pair(world):
    """Two nodes do not hear each other, or one does not hear the other."""
    source, target = world.random.sample(world.nodes, 2)
    _cut(world, source.name, target.name)
    if world.random.random() < 0.6:
        _cut(world, target.name, source.name)


def cut_from_etcd(world):
    """A node does not reach etcd, or hears no answer."""
    name = world.random.choice(world.nodes).name
    ways = [(name, "etcd"), ("etcd", name)]
    for way in ways if world.random.random() < 0.6 else [world.random.choice(ways)]:
        _cut(world, *way)


def depose(world):
    """etcd ends the lease of a leader, which hears nothing of it for long."""
    leading = [node for node in world.nodes if node.program and node.program.elector.lease]
    if leading:
        node = world.random.choice(leading)
        if node.program.elector.lease in world.etcd.leases():
            world.etcd.end_lease(node.program.elector.lease)
        seconds = world.random.uniform(2, 12)
        _cut(world, "etcd", node.name, seconds=seconds)
        _cut(world, node.name, "etcd", seconds=seconds)


def reset(world):
    """Links end."""
    for node in world.nodes:
        if node.program is not None:
            for link in list(node.program.links.values()):
                link.end()


def isolate(world):
    """A node reaches nobody."""
    name = world.random.choice(world.nodes).name
    for other in [node.name for node in world.nodes] + ["etcd"]:
        if other != name:
            _cut(world, name, other)
            _cut(world, other, name)


def refuse(world):
    """etcd has no majority for a while."""
    world.etcd.is_refused = True
    world.after(world.random.uniform(0.5, 8), setattr, world.etcd, "is_refused", False)


def lose(world):
    """Requests and answers of etcd are lost."""
    world.loss = world.random.choice((0.1, 0.3, 0.6))
    world.after(world.random.uniform(1, 8), setattr, world, "loss", 0.0)


def slow_down(world):
    """Everything takes long."""
    world.slow_s = world.random.choice((0.3, 1.0, 4.0, 12.0))
    world.after(world.random.uniform(1, 8), setattr, world, "slow_s", 0.0)


def hold(world):
    """Transactions arrive at the worst time."""
    world.holds = True
    world.after(world.random.uniform(1, 8), setattr, world, "holds", False)


def end_leases(world):
    """etcd ends leases before their time, all or one."""
    leases = world.etcd.leases()
    for lease in leases if world.random.random() < 0.5 else leases[:1]:
        world.etcd.end_lease(lease)


def delete_leader(world):
    """A node that is refused at the leader's address has deleted it; the lease goes on."""
    world.etcd.delete("leader")


def empty_etcd(world):
    """etcd begins anew without anything, in a few seeds. After some seconds an operator has it written anew
    from a node that was in sync. (No node has an empty folder then: it would begin another cluster.)
    """
    if world.empties_etcd and not world.waits_for_operator and all(
            node.folder.cluster for node in world.nodes):
        world.waits_for_operator = electable(world)
        world.etcd.empty()
        world.after(world.random.uniform(1, 8), _adopt, world)


def _adopt(world):
    node = world.random.choice(world.waits_for_operator) if world.waits_for_operator else None
    if node is None or node.program is None or node.program.leads is None and (
            node.program.elector.lease and "leader" in world.etcd.kept):
        world.after(0.5, _adopt, world)
        return
    folder = node.folder
    try:
        world.etcd.transact(adopt(world.etcd.read(), folder.node_id, folder.cluster, folder.epoch))
        world.note("adopted from %s", node)
    except (NotPossible, CoordinatorError) as error:
        world.note("not adopted: %s", error)
    world.waits_for_operator = []


def compact(world):
    """etcd forgets earlier events."""
    world.etcd.compact(world.etcd.revision)


def write_rubbish(world):
    """An operator writes rubbish, or an ``isr`` of an earlier epoch, and puts back what was there."""
    key = world.random.choice(("isr", "leader", "cluster"))
    kept = world.etcd.kept.get(key)
    if kept is not None and key not in world.scribbled:
        world.scribbled.add(key)
        rubbish = b"rubbish %d" % world.etcd.revision
        record = decoded(kept, InSyncRecord.decode) if key == "isr" else None
        if record is not None and record.epoch > 1 and "leader" in world.etcd.kept and (
                world.random.random() < 0.5):
            epoch = record.epoch - 1
            rubbish = InSyncRecord(epoch, dict.fromkeys(record.members, epoch)).encode()
        world.etcd.put(key, rubbish, kept.lease)
        world.after(world.random.uniform(0.1, 3), _put_back, world, key, kept, rubbish)


def _put_back(world, key, kept, rubbish):
    world.scribbled.remove(key)
    there = world.etcd.kept.get(key)
    if there is not None and there.value == rubbish:
        world.etcd.put(key, kept.value, there.lease)


def _boot_later(world, node):
    world.after(world.random.choice((0.2, 1.0, 5.0)), node.boot)


def _cut(world, *way, seconds=None):
    world.cuts.add(way)
    world.after(seconds or world.random.choice((0.5, 2.0, 6.0)), partial(world.cuts.discard, way))


FAULTS = {
    function.__name__: function for function in (
        kill, cut_power, cut_all_power, wipe, back_up_and_restore, fail_flushes, transfer, force, stop,
        jump, cut_pair, cut_from_etcd,
        depose, reset, isolate, refuse, lose, slow_down, hold, end_leases, delete_leader, empty_etcd,
        compact, write_rubbish)
}
