"""Leaks: what a broker keeps while nobody is connected.

``held`` names what is there for clients only, and has to be nothing then. ``kept`` counts all objects of the
broker's classes in this process, and what is in their containers, and ``waiting`` its greenlets and watchers:
between moments at which the broker has the same to keep, neither may grow.
"""
import gc
import re
from collections import Counter, deque
from itertools import pairwise

from greenlet import greenlet

from gomq_py.storage.disk.open_file import File
from tests.simulation.network import Listening

# What is bounded, and remembers clients that are gone.
MEMORIES = ("gomq_py.hub.endings",)
CONTAINERS = (dict, list, set, deque, bytearray)


def held(process):
    """Name -> what a broker has of this for the sake of clients."""
    node = process.node
    hub, broker = node.hub, node.broker
    pool, disk = broker._pool, broker.durability.disk
    gates = [server.gate for server in (node.amqp, node.mqtt) if server is not None]
    facts = {
        "clients": len(hub.clients),
        "clients by user": len(hub.clients._by_user),
        "clients by vhost": len(hub.clients._by_vhost),
        "clients by door": sum(hub.clients._doors.values()),
        "places of admission": hub.admission.count,
        "pending logins": hub.admission.pending_count,
        "pending logins by address": sum(sum(gate._pending_of.values()) for gate in gates),
        "places by address": sum(sum(gate._hosts.values()) for gate in gates),
        "octets of the budget for bodies": hub.bodies.held,
        "octets of messages that wait to be stored": hub.bodies._whole,
        "octets of the budget for large output": hub.large_output.held,
        "heartbeats": len(hub.heartbeats._ticks),
        "streams read by the clock": len(hub.coalescer),
        "streams that queues keep waiting": len(hub.backpressure),
        "sockets after the close": len(hub.lingering),
        "slow turns": len(hub.slow_turns._line),
        "ends under way": len(hub.endings._waiting),
        "turns and jobs": hub.scheduler.is_armed(),
        "work for the disk": not disk.is_idle,
        "writers that wait for files": sum(map(len, pool._waiting.values())),
        "files without their names": len(pool._naming),
        "alarms": sorted(broker.alarms.resources),
        "sockets": sorted(
            one.name for one in process.sockets.values()
            if not one.is_closed and not isinstance(one, Listening)),
    }
    for name, budget in (("bodies", hub.bodies), ("large output", hub.large_output)):
        facts[f"holders of the budget for {name}"] = len(budget._holders)
        facts[f"those who wait for {name}"] = len(budget._waiting)
        facts[f"accounts of the budget for {name}"] = len(budget._of_account) + len(budget._of_output)
    for vhost in broker.vhosts.values():
        facts[f"publishes that wait in {vhost.name}"] = len(vhost.blocked_publishes)
        for queue in vhost.queues.values():
            facts[f"holds of {queue.name}"] = queue.holds
            facts[f"consumers of {queue.name}"] = queue.consumer_count
            facts[f"unacked of {queue.name}"] = queue.unacked_count
            facts[f"closed {queue.name}"] = queue.closed
    return facts


def kept(process):
    """Name -> how many of them there are."""
    gc.collect()
    counts = Counter({"files that are expected": sum(process.node.broker._pool._expected.values())})
    objects = gc.get_objects()
    counted = {kind for kind in set(map(type, objects)) if is_counted(kind)}
    for one in [one for one in objects if type(one) in counted]:
        kind = type(one)
        if issubclass(kind, greenlet):
            counts["greenlets"] += bool(one)
        else:
            counts[kind.__qualname__] += 1
            if isinstance(one, File):
                counts["descriptors"] += one.fd >= 0
            for part in gc.get_referents(one):
                if isinstance(part, CONTAINERS):
                    is_fields = part is getattr(one, "__dict__", None)
                    for each in part.values() if is_fields else (part,):
                        if isinstance(each, CONTAINERS):
                            counts[f"entries of {kind.__qualname__}"] += len(each)
    counts["timers"] = len(process.hub.loop.left())
    with open("/proc/self/maps", "rb") as maps:
        counts["mappings"] = maps.read().count(process.machine.disk.root.encode())
    return counts


def is_counted(kind):
    """Whether objects of it are greenlets, or the broker's."""
    module = str(kind.__module__)
    return issubclass(kind, greenlet) or module.startswith("gomq_py.") and module not in MEMORIES


def waiting(process):
    """Name -> how many greenlets and watchers of this process wait for anything."""
    return Counter(
        [f"greenlet {name_of(one)}" for one in greenlets_of(process)]
        + [f"timer or watcher for {name_of(callback)}" for callback in process.hub.loop.left()])


def greenlets_of(process):
    """Those that have begun, and not ended."""
    objects, hub = gc.get_objects(), process.hub
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, greenlet)}
    return [one for one in objects if type(one) in kinds and one and one.parent is hub]


def name_of(one):
    """What a greenlet, or a callback, is called in every run."""
    name = getattr(one, "name", None) or getattr(one, "__qualname__", one)
    return re.sub(r" at 0x\w+|-?\d+", "", str(name))


def growing(counts):
    """["name: 1, 2, 3"] of what is more in each of these counts than in the one before."""
    rows = {name: [count[name] for count in counts] for name in sorted(counts[-1])}
    return [f"{name}: {', '.join(map(str, row))}" for name, row in rows.items()
            if all(before < after for before, after in pairwise(row))]
