"""``python -m load.hostile``: what hostile or broken clients cost the others, measured.

Each attack goes to a broker of its own on the shipped configuration, beside a quiet pair whose latency is
taken, and the broker's memory. Prints a table, and writes it into docs/hostile.md with ``--write``. Each
row takes ``--seconds`` and what starting a broker takes.

With ``--work`` a second table instead: what long work, at its usual size and at 10 and 100 times as much,
takes of the hub's CPU time in one piece.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from load import client_work, long_work
from load.attacks import ATTACKS, MANAGEMENT
from load.mqtt_attacks import ATTACKS as MQTT
from load.brokers import ROOT, GomqBroker

DOCUMENT = ROOT / "docs" / "hostile.md"
BEGIN, END = "<!-- hostile: written by python -m load.hostile --write -->", "<!-- end of hostile -->"
WORK_BEGIN, WORK_END = (
    "<!-- work: written by python -m load.hostile --work --write -->", "<!-- end of work -->"
)
FACTORS = (1, 10, 100)
WORKS = long_work.WORKS | client_work.WORKS
PACE_S = 0.005
PATIENCE_S = 30


@dataclass
class Row:
    """What one attack did.

    Latencies in milliseconds, memory in octets: what is used (mapped files left out) before,
    and at most during it.
    """

    name: str
    title: str
    outcome: str
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    before: int
    most: int

    @property
    def growth(self):
        """Octets of memory that the attack brought the broker to use."""
        return self.most - self.before


def main(arguments=None):
    """Measure and print; exit code 1 when an attack failed to run."""
    parser = argparse.ArgumentParser(prog="python -m load.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of each attack (%(default)s)")
    parser.add_argument("--scale", type=float, default=1, help="how large the attacks are (%(default)s)")
    parser.add_argument(
        "--attacks", nargs="*", choices=list(ATTACKS), default=list(ATTACKS), help="only these"
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/hostile.md")
    parser.add_argument(
        "--work", nargs="*", choices=[work.__name__ for work in WORKS], help="long work instead, only this"
    )
    options = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.work is not None:
        text = work_document(options.work, options.scale)
        if options.write:
            write(text, WORK_BEGIN, WORK_END)
        print(text)
        return 0
    rows = []
    for name in [None, *options.attacks]:
        with tempfile.TemporaryDirectory(prefix="gomq-hostile-") as folder:
            broker = GomqBroker(folder, management=name in MANAGEMENT, mqtt=name in MQTT).start()
            target = (
                f"http://127.0.0.1:{broker.http_port}" if name in MANAGEMENT
                else broker.mqtt_uri if name in MQTT else broker.uri
            )
            try:
                rows.append(measure(broker.uri, broker.pid, name, options.seconds, options.scale, target))
            finally:
                broker.stop()
        print(line(rows[-1]), flush=True)
    text = document(rows, options)
    if options.write:
        write(text)
    print(text)
    return 0


def work_document(names, scale):
    """The table of the longest pieces of long work."""
    lines = [
        (
            f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} processors. Load average of the quarter of an "
            f"hour before: {os.getloadavg()[2]:.1f} (a quiet machine has 0)."
        ),
        "", "| work | usual size | 10 times | 100 times |", "|---|---|---|---|"]
    for work, size in WORKS.items():
        if not names or work.__name__ in names:
            cells = [measured_work(work, max(1, int(size * factor * scale))) for factor in FACTORS]
            title = re.sub(r"\s+", " ", work.__doc__).strip()
            lines.append(f"| {title} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return "\n".join([*lines, ""])


def measured_work(work, size):
    """The longest piece of the hub's CPU time, for the table."""
    with tempfile.TemporaryDirectory(prefix="gomq-hostile-") as folder:
        broker = GomqBroker(folder, management=True, metered=True, mqtt=True, tls=True).start()
        try:
            longest_ms, total_ms = long_work.measure(broker, work, size)
        except ClientError as error:
            return f"{size:,}: refused, {error}"
        finally:
            broker.stop()
    return f"{size:,}: **{longest_ms:.0f} ms** of {total_ms:.0f}"


def measure(uri, pid, name, seconds, scale, target):
    """A Row: the attack ``name`` (None for nobody) on the URL ``target``, of the broker of process ``pid``,
    beside a quiet pair at ``uri``.

    Raises RuntimeError when it fails.
    """
    with Connection(uri, heartbeat_s=0) as publishing, Connection(uri, heartbeat_s=0) as consuming:
        publisher, consumer = publishing.channel(), consuming.channel()
        consumer.queue_declare("quiet")
        consumer.consume("quiet", no_ack=True)
        exchange(publisher, consumer, 20)
        before = used_memory(pid)
        attack = None if name is None else start(name, target, seconds, scale)
        ends_at = time.monotonic() + seconds
        latencies, most = [], before
        try:
            while (
                time.monotonic() < ends_at
                or attack is not None and attack.poll() is None and time.monotonic() < ends_at + PATIENCE_S
            ):
                latencies += exchange(publisher, consumer, 5)
                most = max(most, used_memory(pid))
        finally:
            outcome = "" if attack is None else finish(attack, name)
    latencies.sort()
    title = "none" if name is None else re.sub(r"\s+", " ", ATTACKS[name].__doc__).strip().rstrip(".")
    at = [latencies[min(len(latencies) - 1, int(len(latencies) * share))] for share in (0.5, 0.99, 1)]
    return Row(name or "nobody", title, outcome, len(latencies), *at, before, most)


def exchange(publisher, consumer, count):
    """Send ``count`` messages one after the other; the milliseconds each took to its consumer."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        publisher.publish("", "quiet", b"0123456789abcdef")
        if consumer.next_delivery(PATIENCE_S) is None:
            raise RuntimeError(f"the quiet pair's message did not come within {PATIENCE_S} s")
        took.append(1000 * (time.perf_counter() - began))
        time.sleep(PACE_S)
    return took


def start(name, url, seconds, scale):
    """The attack in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "load.attacks", name, url, str(seconds), str(scale)], cwd=ROOT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)})


def finish(attack, name):
    """What became of it. Raises RuntimeError when it failed."""
    try:
        said, _ = attack.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        attack.kill()
        attack.communicate()
        raise RuntimeError(f"the attack {name} did not end") from None
    if attack.returncode:
        raise RuntimeError(f"the attack {name} ended with {attack.returncode}")
    return json.loads(said)["outcome"]


def used_memory(pid):
    """Octets of memory of a process without the pages of mapped files."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        _, resident, shared = file.read().split()[:3]
    return (int(resident) - int(shared)) * resource.getpagesize()


def line(row):
    """A row of the table."""
    return (
        f"| {row.title} | {row.outcome} | {row.p50_ms:.2f} / {row.p99_ms:.1f} / {row.max_ms:.0f} | "
        f"{row.before / 1e6:.0f} | {row.growth / 1e6:+.0f} |"
    )


def document(rows, options):
    """The table with what it needs to be read."""
    return "\n".join([
        (
            f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} processors, {options.seconds:g} s each at scale "
            f"{options.scale:g}. Load average of the quarter of an hour before: "
            f"{os.getloadavg()[2]:.1f} (a quiet machine has 0)."
        ),
        "",
        (
            "| attack | outcome | others' latency p50 / p99 / max ms | memory before, "
            "MB | at most more, MB |"
        ),
        "|---|---|---|---|---|", *map(line, rows), ""])


def write(text, begin=BEGIN, end=END):
    """Put a table into the page."""
    page = DOCUMENT.read_text(encoding="utf-8")
    head, tail = page[:page.index(begin) + len(begin)], page[page.index(end):]
    DOCUMENT.write_text(f"{head}\n{text}{tail}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
