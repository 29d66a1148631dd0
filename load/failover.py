"""``python -m load.failover``: how long a cluster of three nodes confirms nothing when it loses its leader.

Three nodes and an etcd on this machine, durable queues with messages in each, and a publisher that waits for
each confirm and connects to another node at once when it gets none. Each run ends the leader as ``--how``
says, and takes the longest time between two confirms; then the node comes back into the in-sync set.

    kill      SIGKILL: its ports refuse connections
    stop      SIGSTOP: its machine is lost, for all that others can tell
    term      SIGTERM
    transfer  gomq-py-ctl transfer_leadership

Prints each run with its phases, and a row for docs/clustering.md.
"""
import argparse
import itertools
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError, Timeout
from tests.ctl.running import Runner, done
from tests.support.elected import Cluster, ElectedNode
from tests.support.etcd_process import EtcdProcess
from tests.support.waiting import wait_until

GONE = (ClientError, OSError)
PERSISTENT = b"\x10\x00\x02"
BODY = bytes(1000)
PUBLISH_EVERY_S = 0.005
# A publisher without a confirm for so long leaves a node that is lost, which closes no connection.
CONFIRM_S = 0.25
# Longer than a follower lets a client wait for a leader.
CONNECT_S = 6.0
WHOLE_S = 180.0
# The log's lines that end the phases of a failover, in their order.
PHASES = (
    ("noticed", "nobody listens at the leader's address"),
    ("elected", "this node was elected leader"),
    ("recovered", "listening cluster"),
    ("leads", "this node leads now"),
    ("in sync", "in sync now: "),
)


class Node(ElectedNode):
    """A node whose log's lines have times. ``times``: {number of a line: time.monotonic()}."""

    def spawn(self):
        self.times = []
        super().spawn()

    def _read_log(self, stream):
        with closing(stream):
            super()._read_log(self._stamped(stream))

    def _stamped(self, stream):
        for line in stream:
            self.times.append(time.monotonic())
            yield line

    def first(self, text, since_s):
        """The time of the first line with this text since then, or None."""
        return next((at for at, line in zip(self.times, self.log) if at >= since_s and text in line), None)


class Publisher:
    """Publishes one message after the other. ``confirmed``: the times of the confirms; ``lost``: the node
    that it is not to come to.
    """

    def __init__(self, nodes):
        self._turn = itertools.cycle(nodes)
        self._is_over = threading.Event()
        self.confirmed = []
        self.lost = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def gap(self, since_s):
        """The longest time between two confirms since then: (its begin, seconds)."""
        times = self.confirmed[:]
        first = max(0, next((at for at, when in enumerate(times) if when >= since_s), len(times)) - 1)
        return max(((begin, end - begin) for begin, end in itertools.pairwise(times[first:])),
                   key=lambda found: found[1], default=(since_s, 0.0))

    def _run(self):
        while not self._is_over.is_set():
            node = next(self._turn)
            if node is not self.lost:
                try:
                    self._publish_to(node)
                except GONE:
                    self._is_over.wait(PUBLISH_EVERY_S)

    def _publish_to(self, node):
        connection = Connection(node.amqp_url, timeout_s=CONNECT_S, heartbeat_s=0)
        try:
            channel = connection.channel()
            channel.confirm_select()
            while not self._is_over.wait(PUBLISH_EVERY_S):
                channel.publish("", "q0", BODY, PERSISTENT)
                self._wait(channel, node)
                self.confirmed.append(time.monotonic())
        finally:
            connection.abort()

    def _wait(self, channel, node):
        """Wait for the confirm. Raises Timeout if this node is lost."""
        while True:
            try:
                channel.wait_for_confirms(CONFIRM_S)
                return
            except Timeout:
                if node is self.lost or self._is_over.is_set():
                    raise


def fill(node, queues, messages):
    """Durable queues with messages in each."""
    with Connection(node.amqp_url, timeout_s=WHOLE_S, heartbeat_s=0) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for number in range(queues):
            channel.queue_declare(f"q{number}", durable=True)
            channel.publish_many(("", f"q{number}", BODY, PERSISTENT) for _ in range(messages))
        channel.wait_for_confirms()


def lose(leader, how):
    """End the leader in this way."""
    if how == "kill":
        leader.process.kill()
    elif how == "stop":
        leader.signal(signal.SIGSTOP)
    elif how == "term":
        leader.signal(signal.SIGTERM)
    else:
        done(Runner("")(
            "--control-unix-path", f"{leader.data_dir}.sock", "transfer_leadership", bare=True))


def bring_back(node, how):
    """Have the former leader follow again."""
    if how == "stop":
        node.signal(signal.SIGCONT)
    elif how != "transfer":
        node.wait()
        node.spawn()


def measured(cluster, publisher, how):
    """One run: (seconds without a confirm, {phase: seconds since the last confirm}, elections)."""
    former = cluster.wait_in_sync(3)
    epoch = former.figures["epoch"]
    count = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) >= count + 20, WHOLE_S, "the publisher publishes")
    began_s = time.monotonic()
    publisher.lost = former
    lose(former, how)
    leader = wait_until(
        lambda: next((node for node in cluster.nodes if node is not former and node.is_leading()), None),
        WHOLE_S, cluster.describe)
    wait_until(
        lambda: (at := leader.first(PHASES[3][1], began_s)) and publisher.confirmed[-1] > at, WHOLE_S,
        cluster.describe)
    begin_s, seconds = publisher.gap(began_s)
    publisher.lost = None
    bring_back(former, how)
    leader = cluster.wait_in_sync(3)
    phases = {
        name: min(found) - begin_s for name, text in PHASES
        if (found := [at for node in cluster.nodes if (at := node.first(text, begin_s))])}
    return seconds, phases, leader.figures["epoch"] - epoch


def main(arguments=None):
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m load.failover", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--how", choices=("kill", "stop", "term", "transfer"), default="kill")
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=10, help="in each queue (%(default)s)")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--lease-ttl", type=int, default=5)
    parser.add_argument("--ack-timeout", type=int, default=3)
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside (%(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gomq-failover-") as folder, EtcdProcess(Path(folder)) as etcd:
        busy = [os.spawnlp(os.P_NOWAIT, sys.executable, sys.executable, "-c", "while True: pass")
                for _ in range(options.busy)]
        try:
            with Cluster(
                    Path(folder), etcd, kind=Node, clustering_lease_ttl=options.lease_ttl,
                    clustering_ack_timeout=options.ack_timeout, clustering_min_isr=2,
                    default_user_only_loopback="no") as cluster:
                fill(cluster.wait_in_sync(3), options.queues, options.messages)
                with Publisher(cluster.nodes) as publisher:
                    found = [_said(measured(cluster, publisher, options.how)) for _ in range(options.runs)]
        finally:
            for process in busy:
                os.kill(process, signal.SIGKILL)
    seconds = sorted(run[0] for run in found)
    p99 = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
    print(
        f"| {options.how} | {options.queues} | {statistics.median(seconds):.2f} s | {p99:.2f} s | "
        f"{seconds[-1]:.2f} s | {len(found)} runs, {sum(run[2] for run in found)} elections")
    return 0


def _said(run):
    seconds, phases, elections = run
    parts = ", ".join(f"{name} {at:.2f}" for name, at in phases.items())
    print(f"{seconds:.2f} s without a confirm: {parts}; {elections} election(s)", flush=True)
    return run


if __name__ == "__main__":
    sys.exit(main())
