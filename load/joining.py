"""``python -m load.joining``: what a follower that joins costs the leader of a cluster.

A leader with many durable queues, one message in each, and two nodes with empty folders that join it, one
after the other. Prints for each the time until it is in sync, the longest piece of the hub's CPU time
meanwhile (load.hub_pieces) and all of them, and the leader's memory before and after.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gomq_py.perf.process import memory_octets
from load.failover import WHOLE_S, fill
from tests.support.elected import Cluster, ElectedNode
from tests.support.etcd_process import EtcdProcess
from tests.support.waiting import wait_until

# The API's figures cost the hub, too.
LOOK_S = 0.5


class MeteredNode(ElectedNode):
    """A node with the meter of load.metered inside."""

    pipe = subprocess.PIPE

    @property
    def arguments(self):
        return [name.replace("tests.support.elected_node", "load.metered") for name in super().arguments]

    def pieces(self):
        """(the longest piece of the hub's CPU time, all of them) since the last call, in ms."""
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["longest_ms"], answer["total_ms"]


def join(leader, node, count):
    """Start a node, and wait until so many are in sync. Returns the row's figures."""
    before = memory_octets(leader.pid)
    leader.pieces()
    began_s = time.monotonic()
    node.spawn()
    wait_until(
        lambda: "in sync now" in leader.log_text and leader.log_text.rpartition("in sync now")[2].split(
            "\n")[0].count(",") == count - 1,
        WHOLE_S, lambda: leader.log_text, lambda _: time.sleep(LOOK_S))
    took_s = time.monotonic() - began_s
    longest_ms, total_ms = leader.pieces()
    after = memory_octets(leader.pid)
    return took_s, longest_ms, total_ms, before["anonymous"] / 1e6, after["anonymous"] / 1e6


def main(arguments=None):
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m load.joining", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gomq-joining-") as folder, EtcdProcess(Path(folder)) as etcd:
        cluster = Cluster(Path(folder), etcd, kind=MeteredNode, clustering_lease_ttl=5)
        try:
            cluster.nodes[0].spawn()
            leader = cluster.leader()
            fill(leader, options.queues, 1)
            for count, node in enumerate(cluster.nodes[1:], 2):
                print("in sync after {:.1f} s, longest piece {:.1f} ms of {:.0f}, leader's anonymous memory "
                      "{:.0f} MB before, {:.0f} MB after".format(*join(leader, node, count)), flush=True)
        finally:
            for node in cluster.running:
                node.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
