"""Rounds of faults: three nodes, an etcd and a publisher; a seed chooses what is killed, stopped or wiped.

``python -m tests.cluster_nodes.rounds FIRST-LAST`` plays these seeds, one after the other, and says of each
what it did. After each round all nodes are back in sync, and every confirmed message is there, in order.
"""
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.support.elected import Client, Cluster
from tests.support.etcd_process import EtcdProcess
from tests.support.waiting import in_time, wait_until

FAULTS_PER_ROUND = 4
FAULT_S = 5.0
HEALED_S = in_time(45)


class Publisher:
    """Publishes in a thread until it is told to stop; ``client`` knows what was confirmed."""

    def __init__(self, cluster):
        self.client = Client(cluster)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._fault = None
        self._thread.start()

    def _run(self):
        try:
            while not self._is_over.is_set():
                self.client.publish(1)
        except BaseException as fault:
            self._fault = fault

    def stop(self):
        self._is_over.set()
        self._thread.join(HEALED_S)
        assert not self._thread.is_alive(), "the publisher gets no confirm any more"
        if self._fault is not None:
            raise self._fault


class Round:
    """One seed's faults."""

    def __init__(self, folder, seed):
        self._folder, self._random = folder, random.Random(seed)
        self.did = []

    def play(self):
        """Play it. AssertionError when something is lost, or does not heal."""
        with EtcdProcess(self._folder) as etcd, Cluster(self._folder, etcd) as cluster:
            self._etcd, self._cluster = etcd, cluster
            cluster.wait_in_sync(3)
            publisher = Publisher(cluster)
            wait_until(lambda: len(publisher.client.confirmed) > 20, HEALED_S)
            for _ in range(FAULTS_PER_ROUND):
                fault = self._random.choice(FAULTS)
                self.did.append(fault.__name__)
                fault(self)
                self._heal(publisher)
            publisher.stop()
            self._check(publisher.client)

    def _heal(self, publisher):
        for node in self._cluster.nodes:
            if not node.is_running:
                node.spawn()
        if self._random.random() < 0.5:
            return  # the next fault comes while this one heals
        before = len(publisher.client.confirmed)
        wait_until(
            lambda: any(len(node.figures.get("in_sync", ())) == 3 for node in self._cluster.nodes if
                        node.is_leading()),
            HEALED_S, lambda: f"all in sync after {self.did}: {self._cluster.describe()}")
        wait_until(
            lambda: len(publisher.client.confirmed) > before, HEALED_S,
            lambda: f"confirms after {self.did}: {self._cluster.describe()}")

    def _check(self, client):
        wait_until(
            lambda: any(len(node.figures.get("in_sync", ())) == 3 for node in self._cluster.nodes if
                        node.is_leading()),
            HEALED_S, lambda: f"all in sync after {self.did}: {self._cluster.describe()}")
        numbers = client.take_all()
        lost = sorted(set(client.confirmed) - set(numbers))
        assert not lost, (
            f"lost {lost[:20]} of {len(client.confirmed)} after {self.did}: {self._cluster.describe()}")
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts), f"out of order after {self.did}"
        client.close()

    # faults

    def _leader(self):
        return next((node for node in self._cluster.running if node.is_leading()), self._cluster.nodes[0])

    def _some(self):
        return self._random.choice(self._cluster.nodes)

    def _pause(self):
        threading.Event().wait(self._random.uniform(0.0, FAULT_S))  # a fault lasts so long

    def kill_leader(self):
        self._leader().kill()

    def kill_one(self):
        self._some().kill()
        self._pause()

    def kill_two(self):
        for node in self._random.sample(self._cluster.nodes, 2):
            node.kill()

    def kill_all(self):
        for node in self._cluster.nodes:
            node.kill()

    def stop_in_order(self):
        node = self._leader()
        if node.is_running:
            node.stop()

    def freeze_leader(self):
        self._freeze(self._leader())

    def freeze_one(self):
        self._freeze(self._some())

    def _freeze(self, node):
        if node.is_running:
            node.signal(signal.SIGSTOP)
            self._pause()
            node.signal(signal.SIGCONT)

    def kill_etcd(self):
        self._etcd.kill()
        self._pause()
        self._etcd.start()
        self._etcd.wait_until_ready()

    def freeze_etcd(self):
        self._etcd.stop()
        self._pause()
        self._etcd.go_on()

    def compact_etcd(self):
        self._etcd.compact()

    def wipe_follower(self):
        """A new disk: the node comes back with an empty folder, and another id."""
        leader = self._leader()
        node = self._random.choice([node for node in self._cluster.nodes if node is not leader])
        node.kill()
        shutil.rmtree(node.data_dir)

    def restore_follower(self):
        """A backup: a follower's folder is the one of some seconds ago."""
        leader = self._leader()
        node = self._random.choice([node for node in self._cluster.nodes if node is not leader])
        copy = self._folder / "copy"
        node.kill()
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(node.data_dir, copy)
        node.spawn()
        self._pause()
        node.kill()
        shutil.rmtree(node.data_dir)
        shutil.copytree(copy, node.data_dir)


FAULTS = [
    Round.kill_leader, Round.kill_leader, Round.kill_one, Round.kill_two, Round.kill_all, Round.stop_in_order,
    Round.freeze_leader, Round.freeze_leader, Round.freeze_one, Round.kill_etcd, Round.freeze_etcd,
    Round.compact_etcd, Round.wipe_follower, Round.restore_follower,
]


def main():
    first, _, last = sys.argv[1].partition("-")
    for seed in range(int(first), int(last or first) + 1):
        with tempfile.TemporaryDirectory(prefix="gomq-rounds-") as folder:
            began = time.monotonic()
            played = Round(Path(folder), seed)
            try:
                played.play()
            finally:
                print(f"seed {seed}: {', '.join(played.did)}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
