"""``python -m load.clusters``: what a message costs the leader of an elected cluster, with one and two
followers in sync, beside the same broker alone; for docs/performance.md.

The broker alone and the two clusters run side by side and are loaded in turn (A B C A B C); the medians of
the rounds count. Needs etcd.
"""
import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gomq_py.perf.process import memory_octets
from load.bench import circumstances, write
from load.brokers import ROOT, GomqBroker, free_ports
from load.scenarios import Row, command, measure
from tests.support.etcd_process import EtcdProcess
from tests.support.waiting import wait_until

BEGIN, END = "<!-- clusters: written by load.clusters -->", "<!-- end of clusters -->"
SECRET = "a secret of the cluster"
LOGIN = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
PATIENCE_S, LOOK_S = 60, 0.1
FOLLOWERS = (0, 1, 2)
FOLLOWER_MIB = 60


@dataclass(frozen=True)
class Load:
    """``most``: the ratio of the leader's CPU time to that of the broker alone with one and two followers, at
    most; ``most_p50``: that of the median time until the confirm.
    """

    row: Row
    most: tuple
    most_p50: float | None = None


LOADS = (
    Load(Row(
        "cluster-small", "persistent, confirms (window 2000), acks of 100, prefetch 1000, 16 octets",
        "-V -p -c 2000 -a 100 -P 1000"), (1.4, 1.6)),
    Load(Row(
        "cluster-kilo", "the same, 1 KiB", "-V -p -c 2000 -a 100 -P 1000 -s 1024"), (1.6, 1.8)),
    Load(Row(
        "cluster-single", "persistent, each published after the confirm of the one before, 16 octets",
        "-p -l -c 1 -y 0", latency="confirm_latency"), (2.0, 2.0), 2.5),
)


class Cluster:
    """A leader with so many followers in sync; none: a broker alone, without clustering."""

    def __init__(self, folder, etcd, followers, checkout):
        folder.mkdir()
        self.nodes = []
        for number in range(followers + 1):
            (folder / f"{number}").mkdir()
            port, = free_ports(1)
            arguments = (
                "--clustering", "--cluster-password", SECRET, "--cluster-port", str(port),
                "--clustering-advertised-uri", f"127.0.0.1:{port}", "--clustering-etcd-endpoints",
                etcd.endpoint, "--clustering-etcd-prefix", folder.name,
            ) if followers else ()
            self.nodes.append(GomqBroker(
                folder / f"{number}", management=True, checkout=checkout, arguments=arguments))

    def start(self, stack):
        """Start the nodes and wait until they are in sync; ``stack``, an ExitStack, stops them. Returns this.
        """
        for count, node in enumerate(self.nodes, 1):
            node.start()
            stack.callback(node.stop)
            # the first one leads
            _wait(lambda count=count: self.is_in_sync(count), f"{count} nodes are not in sync")
        return self

    @property
    def leader(self):
        """The broker that clients use."""
        return self.nodes[0]

    def is_in_sync(self, count=None):
        """Whether the first node leads, and so many, or all, are in sync."""
        if len(self.nodes) == 1:
            return True
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.leader.http_port}/api/cluster", headers=LOGIN)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                figures = json.load(answer)
        except OSError:  # while a node becomes leader its doors are closed
            return False
        return figures["role"] == "leader" and not figures["fenced"] and (
            len(figures["in_sync"]) == (count or len(self.nodes)))

    def measure(self, row, seconds):
        """The figures of one run, with all followers in sync before and behind it."""
        _wait(self.is_in_sync, "a follower has left the in-sync set")
        figures = measure(row, self.leader, seconds)
        if not self.is_in_sync():
            figures["faults"].append("a follower has left the in-sync set")
        return figures

    def follower_octets(self):
        """The resident memory of the largest follower; 0 without one."""
        return max((memory_octets(node.pid)["rss"] for node in self.nodes[1:]), default=0)


def _wait(predicate, what):
    # the API's figures cost the leader, too
    wait_until(predicate, PATIENCE_S, what, lambda _: time.sleep(LOOK_S))


@contextmanager
def running(folder, checkout=ROOT):
    """{number of followers: Cluster}."""
    with ExitStack() as stack:
        etcd = stack.enter_context(EtcdProcess(folder))
        yield {
            count: Cluster(folder / f"followers-{count}", etcd, count, checkout).start(stack)
            for count in FOLLOWERS}


def measured(loads, clusters, options):
    """{key of a row: {number of followers: medians}}, and the most octets that a follower had."""
    found, octets = {}, 0
    for load in loads:
        runs = {count: [] for count in clusters}
        for number in range(options.rounds):
            for count, cluster in clusters.items():
                figures = cluster.measure(load.row, options.seconds)
                octets = max(octets, cluster.follower_octets())
                runs[count].append(figures)
                print(
                    f"{load.row.key} {number + 1}/{options.rounds}, {count} followers: {figures}",
                    file=sys.stderr, flush=True)
        found[load.row.key] = {count: medians(some) for count, some in runs.items()}
    return found, octets


def medians(runs):
    """The median of each figure over some runs; faults of all."""
    names = [name for name in ("cpu_us", "rate", "p50_ms") if all(run[name] is not None for run in runs)]
    return {name: median(run[name] for run in runs) for name in names} | {
        "faults": [fault for run in runs for fault in run["faults"]]}


def document(found, octets, version, options):
    """Lines of the page."""
    loads = [load for load in LOADS if load.row.key in found]
    lines = [
        circumstances(
            {GomqBroker.name: version},
            f"medians of {options.rounds} rounds of {options.seconds:g} s, in turn; ratios to the broker "
            "alone in brackets, with the limit of each", options.load_before), "",
        "| load | alone | one follower | two followers |", "|---|---|---|---|",
    ]
    for load in loads:
        by_count = found[load.row.key]
        lines.append(f"| {load.row.title}: CPU us | " + " | ".join(
            _cell(by_count, count, "cpu_us", (None, *load.most)[count]) for count in FOLLOWERS) + " |")
        if load.most_p50:
            lines.append("| the same: p50 ms | " + " | ".join(
                _cell(by_count, count, "p50_ms", load.most_p50 if count else None)
                for count in FOLLOWERS) + " |")
    return "\n".join([
        *lines, "",
        f"The largest follower had {octets / 2**20:.1f} MiB of resident memory (at most {FOLLOWER_MIB} MiB).",
        "", "```", *(f"{load.row.key + ':':16}{command(load.row, options.seconds)}" for load in loads), "```",
        *(f"- FAULT: {load.row.key}, {count} followers: {fault}" for load in loads for count in FOLLOWERS
          for fault in found[load.row.key][count]["faults"]),
        ""])


def _cell(by_count, count, name, most):
    figure = by_count[count][name]
    text = f"{figure:.2f}"
    if most is not None:
        ratio = figure / by_count[0][name]
        text += f" ({ratio:.2f}, at most {most})"
        if ratio > most:
            text = f"*{text}*"
    return text


def main(arguments=None):
    """Measure and print; with ``--write`` into the page, too. Exit code 1 if a run came back wrong."""
    parser = argparse.ArgumentParser(prog="python -m load.clusters", description=__doc__)
    keys = [load.row.key for load in LOADS]
    parser.add_argument("--rows", nargs="*", choices=keys, default=keys)
    parser.add_argument("--seconds", type=float, default=2, help="of each run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--checkout", type=Path, metavar="FOLDER", help="another checkout, compiled, in place of this")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args(arguments)
    options.load_before = os.getloadavg()[2]
    checkout = {} if options.checkout is None else {"checkout": options.checkout.absolute()}
    loads = [load for load in LOADS if load.row.key in options.rows]
    with tempfile.TemporaryDirectory(prefix="gomq-clusters-") as folder:
        with running(Path(folder), **checkout) as clusters:
            version = clusters[0].leader.version()
            found, octets = measured(loads, clusters, options)
    text = document(found, octets, version, options)
    if options.write:
        write(text, BEGIN, END)
    print(text)
    return 1 if any(each["faults"] for row in found.values() for each in row.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
