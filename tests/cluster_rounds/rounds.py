"""Rounds: a fault that a seed chooses, then a whole cluster and an account in order."""
import os
import shutil
from pathlib import Path
from random import Random

from tests.cluster_rounds import faults
from tests.cluster_rounds.cluster import Cluster

# Rounds over one cluster, which costs some seconds to start.
GROUP = 5
SHOWN_LINES = 60


def seeds(text):
    """"7" or "1-20": the seeds."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def groups(chosen):
    """Seeds that share a cluster."""
    return [chosen[at:at + GROUP] for at in range(0, len(chosen), GROUP)]


def fault_of(seed):
    """The fault of a round."""
    return faults.FAULTS[(seed - 1) % len(faults.FAULTS)]


def run(folder, chosen):
    """Rounds of these seeds, one after the other, over one cluster in an empty folder.

    AssertionError tells the story with the nodes' last lines; all lines are in files in the folder then.
    """
    first = chosen[0]
    cluster = Cluster(folder, min_isr=1 + first // GROUP % 2, version=4 + first // GROUP % 2)
    try:
        with cluster:
            for seed in chosen:
                run_round(cluster, seed)
    except Exception as error:
        raise AssertionError("\n".join([str(error), *keep(cluster, folder)])) from error
    return cluster


def run_round(cluster, seed):
    """One round. AssertionError."""
    random, fault = Random(seed), fault_of(seed)
    cluster.say(f"--- seed {seed}: {fault.__name__}; {cluster.leader().name} leads")
    if random.random() < 0.5:  # what consumers have taken before a loss hides it
        cluster.say("consumers pause")
        for consumer in cluster.consumers:
            consumer.pause()
    fault(cluster, random)
    cluster.network.heal()
    if random.random() < 0.3:
        killed_too(cluster)
    cluster.wait_whole()
    cluster.wait_progress()
    cluster.check()


def killed_too(cluster):
    """Whatever the fault has left behind, the leader is killed at once."""
    leader = cluster.leader()
    if leader is not None:
        cluster.say(f"{leader.name} is killed, too")
        leader.kill()
        leader.spawn()


def keep(cluster, folder):
    """Write all that was said into files, and leave the rest of the folder. Returns lines to be shown."""
    where = Path(os.environ.get("GOMQ_ROUNDS_KEEP") or folder)
    where.mkdir(parents=True, exist_ok=True)
    shown = [*cluster.log]
    (where / "story.log").write_text("\n".join(cluster.log) + "\n")
    for node in cluster.nodes:
        (where / f"{node.name}.log").write_text("\n".join(node.whole_log) + "\n")
        shown += [f"--- the last lines of {node.name}:", *node.whole_log[-SHOWN_LINES:]]
        if where != folder and node.data_dir.exists():
            shutil.copytree(node.data_dir, where / node.name, dirs_exist_ok=True)
    return [*shown, f"--- all of it is in {where}"]
