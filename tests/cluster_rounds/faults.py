"""The faults of a round. Each function does its worst to a Cluster, waits for what must go on meanwhile, and
ends the fault; the round then waits until the cluster is whole, and checks the account.

``FAULTS`` is their order: the seed of a round chooses one, and its random numbers.
"""
import contextlib
import time

from tests.cluster_rounds.nodes import PROGRESS_S, LEASE_TTL_S
from tests.support.waiting import in_time, wait_until

# What clients publish takes some 50 000, compressed.
_SLOW_OCTETS_PER_S = 10_000
STORM_S = 20


def let_pass(cluster, seconds):
    """Let a fault last. Nothing else tells that a lease or a time limit is over."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, seconds + in_time(5))
    cluster.say(f"{seconds:.2f} s have passed")


def follower(cluster, random):
    """Any of the followers."""
    return random.choice(cluster.followers())


def kill_at_once(nodes):
    """SIGKILL of several: none sees the end of another."""
    for node in nodes:
        node.process.kill()
    for node in nodes:
        node.kill()


def gone_from_set(cluster, node):
    """Wait until a node is out of the in-sync set, which confirms need."""
    cluster.wait(lambda: (found := cluster.members()) and node.name not in found, f"{node.name} is removed")


# processes


def leader_is_killed(cluster, random):
    """With its machine; another one leads, and this one follows it."""
    leader = cluster.leader()
    cluster.lose(leader)
    cluster.wait_another(leader)
    cluster.wait_progress()
    leader.spawn()


def leader_is_killed_and_comes_back_at_once(cluster, random):
    """Before its lease is over."""
    leader = cluster.leader()
    leader.kill()
    leader.spawn()


def follower_is_killed(cluster, random):
    """SIGKILL; confirms go on without it."""
    node = follower(cluster, random)
    node.kill()
    cluster.wait_progress()
    node.spawn()


def two_are_killed(cluster, random):
    """SIGKILL of two at once; the third one goes on, if one is enough."""
    nodes = random.sample(cluster.nodes, 2)
    kill_at_once(nodes)
    if cluster.min_isr == 1:
        cluster.wait_progress()
    else:
        let_pass(cluster, LEASE_TTL_S)
    for node in random.sample(nodes, 2):
        node.spawn()


def all_are_killed(cluster, random):
    """SIGKILL of all at once."""
    kill_at_once(cluster.nodes)
    for node in random.sample(cluster.nodes, 3):
        node.spawn()


def one_after_the_other_is_killed(cluster, random):
    """Each leader, as soon as it leads."""
    first = cluster.leader()
    first.kill()
    second = cluster.wait_another(first)
    first.spawn()
    second.kill()
    cluster.wait_progress()
    second.spawn()


def leader_is_stopped_beyond_its_lease(cluster, random):
    """SIGSTOP; another one leads; the former one wakes, and has nothing to say."""
    leader = cluster.leader()
    leader.suspend()
    cluster.wait_another(leader)
    if random.random() < 0.5:
        cluster.wait_progress()
    leader.wake()


def leader_is_stopped_for_a_moment(cluster, random):
    """SIGSTOP for up to the lease."""
    leader = cluster.leader()
    leader.suspend()
    let_pass(cluster, random.uniform(0.2, 1.0) * LEASE_TTL_S)
    leader.wake()


def follower_is_stopped(cluster, random):
    """SIGSTOP; it is removed, and confirms go on."""
    node = follower(cluster, random)
    node.suspend()
    gone_from_set(cluster, node)
    cluster.wait_progress()
    node.wake()


def leader_ends_in_order(cluster, random):
    """SIGTERM."""
    leader = cluster.leader()
    leader.stop()
    cluster.wait_another(leader)
    cluster.wait_progress()
    leader.spawn()


def leadership_is_transferred(cluster, random):
    """By an operator."""
    leader = cluster.leader()
    cluster.ctl(leader, "transfer_leadership")
    cluster.wait_another(leader)


def all_are_restarted(cluster, random):
    """SIGTERM and a start, one after the other, each when the cluster is whole."""
    for node in random.sample(cluster.nodes, 3):
        node.stop()
        node.spawn()
        cluster.wait_whole()


# etcd


@contextlib.contextmanager
def _clients_stay(cluster):
    """A leader that nobody else has succeeded keeps its clients when etcd is back."""
    leader, process = cluster.leader(), cluster.leader().process
    before = [consumer.connections for consumer in cluster.consumers]
    yield
    cluster.wait_whole()
    if cluster.leader() is leader and leader.process is process:
        after = [consumer.connections for consumer in cluster.consumers]
        assert after == before, f"consumers lost connections: {before}, {after}"


def etcd_is_killed(cluster, random):
    """SIGKILL, for a moment or beyond the lease."""
    with _clients_stay(cluster):
        cluster.coordinator.kill()
        if random.random() < 0.5:
            let_pass(cluster, LEASE_TTL_S * 1.2)
        cluster.coordinator.begin()


def etcd_is_stopped(cluster, random):
    """SIGSTOP beyond the lease."""
    with _clients_stay(cluster):
        cluster.coordinator.stop()
        let_pass(cluster, LEASE_TTL_S * random.uniform(0.5, 2))
        cluster.coordinator.go_on()


def etcd_is_slow(cluster, random):
    """For the leader, whose calls end without an answer."""
    with _clients_stay(cluster):
        for way in cluster.network.between(cluster.leader().name, "etcd"):
            way.slow(200)
        let_pass(cluster, LEASE_TTL_S * random.uniform(1, 3))
        cluster.network.heal()


def etcd_is_compacted(cluster, random):
    """Its history is gone; then a follower goes, which somebody has to notice."""
    cluster.coordinator.compact()
    follower_is_killed(cluster, random)


def etcd_is_emptied(cluster, random):
    """All keys are gone; the log names what an operator has to do, who does it at the former leader."""
    leader = cluster.leader()
    cluster.coordinator.lose_everything()
    cluster.wait(lambda: any("cluster_adopt" in line for line in leader.log), "the log names cluster_adopt")
    cluster.ctl(leader, "cluster_adopt")


def etcd_and_leader_are_killed(cluster, random):
    """Both at once."""
    leader = cluster.leader()
    leader.process.kill()
    cluster.coordinator.kill()
    leader.kill()
    cluster.coordinator.begin()
    cluster.wait_progress()
    leader.spawn()


# the network


def _cut(cluster, ways, random):
    for way in ways:
        way.cut()
    cluster.say(f"cut: {[way.name for way in ways]}")
    if random.random() < 0.3:
        cluster.network.reset(*ways)
        cluster.say("connections are reset")


def leader_and_follower_are_cut(cluster, random):
    """Both ways between one pair, for a moment or until the follower is removed."""
    leader, node = cluster.leader(), follower(cluster, random)
    _cut(cluster, cluster.network.between(leader.name, node.name), random)
    if random.random() < 0.7:
        gone_from_set(cluster, node)
        cluster.wait_progress()
    else:
        let_pass(cluster, PROGRESS_S * random.random())


def leader_and_follower_are_cut_one_way(cluster, random):
    """Frames, or acks."""
    leader, node = cluster.leader(), follower(cluster, random)
    _cut(cluster, [random.choice(cluster.network.between(leader.name, node.name))], random)
    gone_from_set(cluster, node)
    cluster.wait_progress()


def leader_and_all_followers_are_cut(cluster, random):
    """The leader goes on alone, if one is enough, for etcd still hears it."""
    leader = cluster.leader()
    _cut(cluster, [
        way for node in cluster.nodes if node is not leader
        for way in cluster.network.between(leader.name, node.name)], random)
    if cluster.min_isr == 1:
        cluster.wait_progress()
    else:
        let_pass(cluster, LEASE_TTL_S * 1.5)


def leader_and_etcd_are_cut(cluster, random):
    """Both ways, or one: answers that are lost belong to requests that were done."""
    leader = cluster.leader()
    there, back = cluster.network.between(leader.name, "etcd")
    _cut(cluster, random.choice([(there, back), (there,), (back,)]), random)
    if random.random() < 0.7:
        cluster.wait_another(leader)
        cluster.wait_progress()
    else:
        let_pass(cluster, LEASE_TTL_S * random.random())


def answers_of_etcd_are_lost_while_a_follower_goes(cluster, random):
    """The removal is done, and the leader does not hear of it."""
    leader, node = cluster.leader(), follower(cluster, random)
    node.kill()
    _cut(cluster, [cluster.network.way("etcd", leader.name)], random)
    let_pass(cluster, PROGRESS_S * random.uniform(0.5, 2))
    cluster.network.heal()
    cluster.wait_progress()
    node.spawn()


def answers_of_etcd_are_lost_while_the_leader_goes(cluster, random):
    """A follower is elected, and does not hear of it."""
    leader, node = cluster.leader(), follower(cluster, random)
    _cut(cluster, [cluster.network.way("etcd", node.name)], random)
    leader.kill()
    let_pass(cluster, LEASE_TTL_S * random.uniform(0.5, 2))
    cluster.network.heal()
    cluster.wait_progress()
    leader.spawn()


def leader_is_killed_before_a_slow_link(cluster, random):
    """A follower that is behind must not lead without what was confirmed."""
    leader, node = cluster.leader(), follower(cluster, random)
    cluster.network.way(leader.name, node.name).slow(_SLOW_OCTETS_PER_S)
    cluster.wait_progress(random.randrange(1, 100))
    cluster.lose(leader)
    cluster.network.heal()
    cluster.wait_progress()
    leader.spawn()


def leader_is_killed_behind_a_cut(cluster, random):
    """Before anybody is removed: nothing that the followers lack was confirmed."""
    leader = cluster.leader()
    for node in cluster.followers():
        cluster.network.way(leader.name, node.name).cut()
    let_pass(cluster, PROGRESS_S * random.uniform(0.1, 0.9))
    cluster.lose(leader)
    cluster.network.heal()
    cluster.wait_progress()
    leader.spawn()


def leader_is_killed_while_a_follower_is_out(cluster, random):
    """One that was removed must not lead, though it runs alone for a while."""
    leader, node = cluster.leader(), follower(cluster, random)
    (other,) = [one for one in cluster.nodes if one not in (leader, node)]
    _cut(cluster, cluster.network.between(leader.name, node.name), random)
    gone_from_set(cluster, node)
    cluster.wait_progress()
    cluster.lose(leader)
    if random.random() < 0.5:
        other.kill()
        cluster.network.heal()
        let_pass(cluster, LEASE_TTL_S * 1.5)
        other.spawn()
    else:
        cluster.network.heal()
    if cluster.min_isr == 1:
        cluster.wait_progress()
    leader.spawn()


def leader_is_killed_during_a_sync(cluster, random):
    """Of a follower that was wiped."""
    leader, node = cluster.leader(), follower(cluster, random)
    node.kill()
    node.wipe_folder()
    node.spawn()
    cluster.wait(lambda: node.figures().get("state") in ("syncing", "streaming"), f"{node.name} syncs")
    leader.kill()
    cluster.wait_progress()
    leader.spawn()


def leader_is_cut_from_all(cluster, random):
    """But clients: what they give to it must not be confirmed."""
    leader = cluster.leader()
    ways = [*cluster.network.between(leader.name, "etcd")]
    for node in cluster.nodes:
        if node is not leader:
            ways += cluster.network.between(leader.name, node.name)
    _cut(cluster, ways, random)
    cluster.wait_another(leader)
    cluster.wait_progress()


def follower_and_etcd_are_cut(cluster, random):
    """It still follows."""
    node = follower(cluster, random)
    _cut(cluster, cluster.network.between(node.name, "etcd"), random)
    let_pass(cluster, LEASE_TTL_S * random.random())
    cluster.wait_progress()


def link_is_slow(cluster, random):
    """The follower keeps up or is removed; confirms go on."""
    leader, node = cluster.leader(), follower(cluster, random)
    for way in cluster.network.between(leader.name, node.name):
        way.slow(_SLOW_OCTETS_PER_S)
    cluster.wait_progress()
    let_pass(cluster, PROGRESS_S)
    cluster.wait_progress()


# disks


def disk_of_follower_is_full(cluster, random):
    """It leaves the in-sync set, and comes back when there is room."""
    _disk_is_ill(cluster, follower(cluster, random), "full")


def flushes_of_follower_fail(cluster, random):
    """As a full disk."""
    _disk_is_ill(cluster, follower(cluster, random), "broken")


def flushes_of_follower_hang(cluster, random):
    """It makes no progress."""
    node = follower(cluster, random)
    node.fall_ill("stuck")
    gone_from_set(cluster, node)
    cluster.wait_progress()
    node.recover("stuck")


def _disk_is_ill(cluster, node, how):
    node.fall_ill(how)
    cluster.wait_progress(100)
    node.recover(how)


def disk_of_leader_is_full(cluster, random):
    """Publishers wait, or another one leads."""
    leader = cluster.leader()
    leader.fall_ill("full")
    let_pass(cluster, LEASE_TTL_S)
    leader.recover("full")


def flushes_of_leader_hang(cluster, random):
    """Its hub is alive, and keeps no lease."""
    leader = cluster.leader()
    leader.fall_ill("stuck")
    cluster.wait_another(leader)
    cluster.wait_progress()
    leader.recover("stuck")


# folders


def bits_of_follower_are_flipped(cluster, random):
    """While it is not running; what it has is mended by its sync."""
    node = follower(cluster, random)
    node.kill()
    gone_from_set(cluster, node)
    cluster.say(f"flipped in {node.name}: {node.flip_bits(random)}")
    node.spawn()


def bits_of_one_are_flipped_while_all_are_down(cluster, random):
    """Whoever leads, the good copies win."""
    kill_at_once(cluster.nodes)
    node = random.choice(cluster.nodes)
    cluster.say(f"flipped in {node.name}: {node.flip_bits(random)}")
    for node in random.sample(cluster.nodes, 3):
        node.spawn()


def sealed_bits_of_the_next_leader_are_flipped(cluster, random):
    """In a segment that a boot does not read: when the others sync, their copies are the sound ones."""
    def is_there():
        return all(list(node.data_dir.glob("queues/*/msgs.0000000003")) for node in cluster.nodes)

    cluster.wait(is_there, "there are sealed segments")
    node = random.choice(cluster.nodes)
    kill_at_once(cluster.nodes)
    cluster.say(f"flipped in {node.name}: {node.flip_bits(random, 1, 'queues/*/msgs.0000000002')}")
    for other in cluster.nodes:
        if other is not node:
            _cut(cluster, cluster.network.between(other.name, "etcd"), random)
    epoch = cluster.coordinator.record("isr")["epoch"]
    for one in cluster.nodes:
        one.spawn()
    cluster.wait(lambda: cluster.coordinator.record("isr")["epoch"] > epoch, f"{node.name} is elected")


def folder_of_follower_is_wiped(cluster, random):
    """A new machine in its place."""
    node = follower(cluster, random)
    node.kill()
    node.wipe_folder()
    node.spawn()


def folder_of_leader_is_wiped(cluster, random):
    """A new machine in its place."""
    leader = cluster.leader()
    leader.kill()
    leader.wipe_folder()
    leader.spawn()


def folder_of_follower_is_restored_and_the_leader_goes(cluster, random):
    """An older copy of a node's folder, of an earlier epoch; nobody may lead with it before its sync."""
    node = follower(cluster, random)
    node.kill()
    node.copy_folder()
    node.spawn()
    cluster.wait_whole()
    former = cluster.leader()
    former.kill()
    leader = cluster.wait_another(former)
    former.spawn()
    cluster.wait_whole()
    cluster.wait_progress()
    if leader is node:
        leader.kill()
        node.restore_folder()
        node.spawn()
        return
    node.kill()
    node.restore_folder()
    leader.kill()
    node.spawn()
    cluster.wait_progress()
    leader.spawn()


# all of them


def storm(cluster, random):
    """Processes are killed and stopped, ways cut and slowed, one thing after the other, and nobody waits."""
    until = time.monotonic() + STORM_S
    while time.monotonic() < until:
        random.choice(_GUSTS)(cluster, random)
        let_pass(cluster, random.choice((0.05, 0.5, 1, 2)) * random.random())
    for node in cluster.nodes:
        if node.is_running:
            node.wake()
        else:
            node.spawn()
    if cluster.coordinator.process.poll() is None:
        cluster.coordinator.go_on()
    else:
        cluster.coordinator.begin()


def _kill_or_spawn(cluster, random):
    node = random.choice(cluster.nodes)
    cluster.say(f"{node.name}: {'kill' if node.is_running else 'spawn'}")
    if node.is_running:
        node.kill()
    else:
        node.spawn()


def _suspend_or_wake(cluster, random):
    node = random.choice(cluster.nodes)
    if node.is_running:
        cluster.say(f"{node.name}: suspended or woken")
        random.choice((node.suspend, node.wake, node.wake))()


def _cut_or_heal(cluster, random):
    source, target = random.sample([*(node.name for node in cluster.nodes), "etcd"], 2)
    way = cluster.network.way(source, target)
    cluster.say(f"{way.name}: {'heal' if way.is_cut else 'cut'}")
    if way.is_cut:
        way.heal()
    elif random.random() < 0.2:
        way.slow(_SLOW_OCTETS_PER_S)
    else:
        way.cut()
    if random.random() < 0.1:
        cluster.network.reset(way)


def _heal_all(cluster, random):
    cluster.say("heal")
    cluster.network.heal()


def _kill_or_begin_etcd(cluster, random):
    coordinator = cluster.coordinator
    is_running = coordinator.process.poll() is None
    cluster.say(f"etcd: {'kill' if is_running else 'begin'}")
    if is_running:
        coordinator.kill()
    else:
        coordinator.begin()


def _spawn_all(cluster, random):
    for node in cluster.nodes:
        if not node.is_running:
            cluster.say(f"{node.name}: spawn")
            node.spawn()
        else:
            node.wake()


_GUSTS = (
    _kill_or_spawn, _kill_or_spawn, _kill_or_spawn, _suspend_or_wake, _suspend_or_wake, _cut_or_heal,
    _cut_or_heal, _cut_or_heal, _heal_all, _heal_all, _kill_or_begin_etcd, _spawn_all, _spawn_all,
)

# Those of CI first: 20 in an order that mixes them.
FAULTS = (
    leader_is_killed, follower_is_stopped, leader_and_etcd_are_cut, leader_is_stopped_beyond_its_lease,
    two_are_killed, leader_and_follower_are_cut_one_way, etcd_is_killed, folder_of_leader_is_wiped,
    leader_is_cut_from_all, disk_of_follower_is_full, all_are_killed, etcd_is_compacted,
    leader_and_follower_are_cut, folder_of_follower_is_restored_and_the_leader_goes, link_is_slow,
    etcd_is_emptied, bits_of_one_are_flipped_while_all_are_down, leader_ends_in_order,
    answers_of_etcd_are_lost_while_a_follower_goes, disk_of_leader_is_full,
    leader_is_killed_and_comes_back_at_once, follower_is_killed, etcd_and_leader_are_killed, etcd_is_stopped,
    one_after_the_other_is_killed, leader_and_all_followers_are_cut, follower_and_etcd_are_cut,
    bits_of_follower_are_flipped, folder_of_follower_is_wiped, flushes_of_follower_fail,
    leader_is_killed_before_a_slow_link, leader_is_killed_during_a_sync,
    answers_of_etcd_are_lost_while_the_leader_goes,
    flushes_of_follower_hang, leader_is_stopped_for_a_moment, flushes_of_leader_hang, all_are_restarted,
    leader_is_killed_while_a_follower_is_out, leader_is_killed_behind_a_cut,
    leadership_is_transferred, etcd_is_slow, sealed_bits_of_the_next_leader_are_flipped, storm,
)
