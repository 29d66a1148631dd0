"""The rows of shovels and federation: what it costs the process that moves messages from one broker to
another. Source and destination are gomq-py in processes of their own; RabbitMQ's plugin moves between the
same two.
"""
import argparse
import http.client
import json
import os
import signal
import sys
import tempfile
import time
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed
from gomq_py.perf.process import cpu_seconds, memory_octets
from load.bench import DOCUMENT, circumstances
from load.brokers import GomqBroker, RabbitBroker
from load.scenarios import start

BEGIN, END = "<!-- links: written by python -m load.shovels --write -->", "<!-- end of links -->"
QUEUE = "bench-shovel"
NAME = "bench"
IDLE_COUNT = 1000
PATIENCE_S, LOOK_S, SETTLE_S = 60, 0.02, 2


@dataclass(frozen=True)
class ShovelRow:
    """``arguments`` are gomq-py-perf's, for what fills the source; ``count`` messages are moved. ``cpu_us``
    and ``rate``: at most and at least.
    """

    key: str
    title: str
    arguments: str
    count: int
    cpu_us: float
    rate: float


ROWS = (
    ShovelRow("shovel-small", "shovel, on-confirm, 16 octets", "-s 16", 500_000, 3.0, 100e3),
    ShovelRow("shovel-kilo", "shovel, on-confirm, 1 KiB", "-s 1024", 200_000, 6.0, 60e3),
    ShovelRow(
        "shovel-kept", "shovel, on-confirm, 16 octets, persistent", "-s 16 -p", 500_000, 3.0, 100e3),
)
FEDERATED = ShovelRow(
    "federation", "one-way federation of an exchange, on-confirm, 16 octets, draining", "", 100_000, 6.0,
    80e3)
LIVE = ShovelRow(
    "federation-live", "the same live: published at full speed, and consumed meanwhile", "", 400_000, 6.0,
    80e3)
EXCHANGE = "bench-federated"
IDLE_LIMIT = 30 * 1024
# Those that are slower move less.
SHARE = {GomqBroker.name: 1.0, RabbitBroker.name: 0.1}


EVERY = (*ROWS, FEDERATED, LIVE)


class Trio:
    """A source and a destination, and the broker in between that is measured."""

    def __init__(self, folder, kind):
        folder = Path(folder) / f"trio-{kind.name}"
        folder.mkdir()
        self.name = kind.name
        for name in ("source", "destination", "mover"):
            (folder / name).mkdir()
        self.source = GomqBroker(folder / "source")
        self.destination = GomqBroker(folder / "destination")
        self.mover = (
            GomqBroker(folder / "mover", management=True) if kind is GomqBroker
            else RabbitBroker(folder / "mover", plugins=(
                "rabbitmq_shovel", "rabbitmq_federation", "rabbitmq_management")))

    def __enter__(self):
        for broker in (self.source, self.destination, self.mover):
            broker.start()
        # a federation takes nothing from a broker of its own name
        self.call("PUT", "/api/cluster-name", {"name": "bench-mover"})
        return self

    def __exit__(self, *_):
        for broker in (self.mover, self.destination, self.source):
            broker.stop()

    def call(self, verb, path, value=None):
        """The management API of the one in the middle."""
        connection = http.client.HTTPConnection("127.0.0.1", self.mover.http_port, timeout=PATIENCE_S)
        login = b64encode(b"guest:guest").decode()
        connection.request(
            verb, path, json.dumps(value) if value is not None else None,
            {"Authorization": f"Basic {login}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{verb} {path}: {answer.status} {text.decode(errors='replace')}")

    def shovel(self, number=""):
        """Have the middle one move from queue to queue."""
        queue = f"{QUEUE}{number}"
        self.call("PUT", f"/api/parameters/shovel/%2F/{NAME}{number}", {"value": {
            "src-uri": self.source.uri, "src-queue": queue, "dest-uri": self.destination.uri,
            "dest-queue": queue, "ack-mode": "on-confirm", "src-prefetch-count": 1000,
        }})

    def end_shovel(self, number=""):
        self.call("DELETE", f"/api/parameters/shovel/%2F/{NAME}{number}")


def measured(row, trio, share=1.0):
    """{"cpu_us", "rate"} of one run, of federation also "upstream_us": CPU time of the broker upstream."""
    count = max(1, int(row.count * SHARE[trio.name] * share))
    if row in (FEDERATED, LIVE):
        with _federation(trio) as ends:
            return (_drained if row is FEDERATED else _live)(trio, count, *ends)
    return _shovelled(row, trio, count)


@contextmanager
def _federation(trio):
    """An exchange of the source, federated into a queue of the one in the middle: a channel at each."""
    with Connection(trio.source.uri) as upstream, Connection(trio.mover.uri) as mover:
        here, there = mover.channel(), upstream.channel()
        there.exchange_declare(EXCHANGE, "fanout")
        here.exchange_declare(EXCHANGE, "fanout")
        here.queue_declare(QUEUE, durable=True)
        here.queue_bind(QUEUE, EXCHANGE)
        trio.call("PUT", "/api/parameters/federation-upstream/%2F/bench", {"value": {"uri": trio.source.uri}})
        trio.call("PUT", "/api/policies/%2F/bench", {
            "pattern": EXCHANGE, "definition": {"federation-upstream": "bench"}, "apply-to": "exchanges"})
        try:
            _wait(lambda: _is_federated(there, here))
            yield there, here
        finally:
            trio.call("DELETE", "/api/policies/%2F/bench")
            trio.call("DELETE", "/api/parameters/federation-upstream/%2F/bench")
            here.queue_delete(QUEUE)


def _drained(trio, count, there, here):
    """Published while nothing is moved, then all of it is."""
    pids = trio.mover.pid, trio.source.pid
    _publish_while_held(there, count, trio.mover.pid)
    before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    _wait(lambda: here.queue_declare(QUEUE, passive=True).message_count >= count)
    return _federated(count, time.monotonic() - began, pids, before)


def _live(trio, count, _there, here):
    """Published as fast as the upstream takes it; the rate is from the first publish until all is consumed
    from the broker in the middle.
    """
    pids = trio.mover.pid, trio.source.pid
    here.queue_purge(QUEUE)
    consumer = start(trio.mover, f"-u {QUEUE} -x 0 -D {count} --predeclared")
    _wait(lambda: here.queue_declare(QUEUE, passive=True).consumer_count)
    before = [cpu_seconds(pid) for pid in pids]
    publisher = start(trio.source, f"-e {EXCHANGE} -k k -y 0 -s 16 -C {count} --predeclared")
    _wait(lambda: publisher.poll() is not None)
    published_at = time.monotonic()
    _wait(lambda: consumer.poll() is not None)
    ended_at = time.monotonic()
    found = [json.loads(process.communicate()[0]) for process in (publisher, consumer)]
    if found[1]["consumed"] < count:
        raise RuntimeError(f"{found[1]['consumed']} of {count} messages were consumed")
    return _federated(count, ended_at - published_at + found[0]["elapsed_seconds"], pids, before)


def _federated(count, took_s, pids, before):
    time.sleep(SETTLE_S / 4)
    mover_us, upstream_us = (
        (cpu_seconds(pid) - spent) / count * 1e6 for pid, spent in zip(pids, before))
    return {"cpu_us": mover_us, "rate": count / took_s, "upstream_us": upstream_us}


def _publish_while_held(channel, count, pid):
    """Fill the upstream while the process that is measured stands still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        channel.confirm_select()
        channel.publish_many((EXCHANGE, "k", b"x" * 16, None) for _ in range(count))
        channel.wait_for_confirms(PATIENCE_S)
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_federated(there, here):
    there.publish(EXCHANGE, "k", b"first")
    return here.queue_declare(QUEUE, passive=True).message_count


def _wait(predicate):
    until = time.monotonic() + PATIENCE_S
    while not predicate():
        if time.monotonic() > until:
            raise RuntimeError(f"not within {PATIENCE_S} s")
        time.sleep(LOOK_S)


def _shovelled(row, trio, count):
    """The source is filled, then all of it is moved."""
    with Connection(trio.source.uri) as source, Connection(trio.destination.uri) as destination:
        ends = [connection.channel() for connection in (source, destination)]
        for channel in ends:
            channel.queue_declare(QUEUE, durable=True)
            channel.queue_purge(QUEUE)
        output, errors = start(
            trio.source, f"-u {QUEUE} -y 0 -c 1000 -C {count} {row.arguments}").communicate()
        if not output:
            raise RuntimeError(errors)
        count = ends[0].queue_declare(QUEUE, passive=True).message_count
        before, began = cpu_seconds(trio.mover.pid), None
        trio.shovel()
        try:
            until = time.monotonic() + PATIENCE_S
            while (moved := ends[1].queue_declare(QUEUE, passive=True).message_count) < count:
                if began is None and moved:
                    began, first = time.monotonic(), moved
                if time.monotonic() > until:
                    raise RuntimeError(f"{moved} of {count} messages were moved")
                time.sleep(LOOK_S)
            took_s = time.monotonic() - began if began else LOOK_S
            time.sleep(SETTLE_S / 4)
            spent = cpu_seconds(trio.mover.pid) - before
        finally:
            trio.end_shovel()
            for channel in ends:
                channel.queue_delete(QUEUE)
    return {"cpu_us": spent / count * 1e6, "rate": (count - (first if began else 0)) / took_s}


def idle_octets(trio, count=IDLE_COUNT):
    """Anonymous memory of a shovel that waits for messages, in the one in the middle."""
    trio.shovel("warm")
    time.sleep(SETTLE_S)
    before = memory_octets(trio.mover.pid)["anonymous"]
    for number in range(count):
        trio.shovel(number)
    with Connection(trio.source.uri) as connection:
        channel = connection.channel()
        until = time.monotonic() + PATIENCE_S
        while not channel.queue_declare(f"{QUEUE}{count - 1}", durable=True).consumer_count:
            if time.monotonic() > until:
                raise RuntimeError("the shovels do not begin")
            time.sleep(LOOK_S)
    time.sleep(SETTLE_S)
    octets = (memory_octets(trio.mover.pid)["anonymous"] - before) / count
    spent = cpu_seconds(trio.mover.pid)
    time.sleep(10)
    return {"octets": octets, "cpu": (cpu_seconds(trio.mover.pid) - spent) / 10}


def idle_links(trio, count=IDLE_COUNT):
    """The same of a federation link: one upstream, and a policy over so many exchanges with a binding each.
    The memory is that of the links alone.
    """
    with Connection(trio.mover.uri) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        for number in range(count + 1):
            channel.exchange_declare(f"{EXCHANGE}.{number}", "topic")
            channel.queue_bind(QUEUE, f"{EXCHANGE}.{number}", "a.#")
    trio.call("PUT", "/api/parameters/federation-upstream/%2F/bench", {"value": {"uri": trio.source.uri}})
    for pattern in (f"{EXCHANGE}.{count}$", f"{EXCHANGE}."):  # the first takes what is taken once
        before = memory_octets(trio.mover.pid)["anonymous"]
        began = time.monotonic()
        trio.call("PUT", "/api/policies/%2F/bench", {
            "pattern": pattern, "definition": {"federation-upstream": "bench"}, "apply-to": "exchanges"})
        with Connection(trio.source.uri) as connection:
            _wait(lambda: _are_linked(connection, 0 if pattern.endswith("$") else count))
        took_s = time.monotonic() - began
        time.sleep(SETTLE_S * 5)  # what they have connected for a while is closed
    octets = (memory_octets(trio.mover.pid)["anonymous"] - before) / count
    spent = cpu_seconds(trio.mover.pid)
    time.sleep(10)
    return {"octets": octets, "cpu": (cpu_seconds(trio.mover.pid) - spent) / 10, "began_s": took_s}


def _are_linked(connection, count):
    """Whether so many queues upstream have their consumers."""
    channel = connection.channel()
    try:
        names = [f"federation: {EXCHANGE}.{number} -> bench-mover" for number in range(count)]
        return all(channel.queue_declare(name, passive=True).consumer_count for name in names)
    except ChannelClosed:
        return False


def measured_all(folder, options):
    """{(key of a row, name of a broker): best figures, or None}, {name: version}, idle figures or None."""
    best, versions, idle = {}, {}, None
    for kind in [GomqBroker] + [RabbitBroker] * (RabbitBroker.is_installed() and not options.alone):
        with Trio(folder, kind) as trio:
            versions[kind.name] = trio.mover.version()
            for row in EVERY:
                if row.key in options.rows:
                    best[row.key, kind.name] = _best(row, trio, options)
            if options.idle and kind is GomqBroker:
                idle = [idle_octets(trio, options.idle), idle_links(trio, options.idle)]
                print("idle shovels, idle links:", *idle, flush=True)
    return best, versions, idle


def _best(row, trio, options):
    runs = []
    for _ in range(options.rounds):
        try:
            runs.append(measured(row, trio, options.share))
        except RuntimeError as error:  # not within PATIENCE_S; the others are measured all the same
            print(row.key, trio.name, error, file=sys.stderr, flush=True)
            continue
        print(row.key, trio.name, runs[-1], flush=True)
    if not runs:
        return None
    return {"cpu_us": min(run["cpu_us"] for run in runs), "rate": max(run["rate"] for run in runs)}


def document(best, versions, idle, options):
    """Lines of the page."""
    names = list(versions)
    lines = [
        circumstances(versions, f"best of {options.rounds} rounds", options.load_before), "",
        "| between two brokers, CPU of the process that moves | CPU us per message, at most "
        "| rate, at least | " + " | ".join(f"{name}: CPU us | {name}: messages/s" for name in names) + " |",
        "|---|---|---|" + "---|---|" * len(names),
    ]
    for row in EVERY:
        found = [best.get((row.key, name)) for name in names]
        figures = " | ".join(
            "- | -" if each is None else f"{each['cpu_us']:.2f} | {each['rate'] / 1e3:.0f} k"
            for each in found)
        lines.append(f"| {row.title} | {row.cpu_us} | {row.rate / 1e3:.0f} k | {figures} |")
    if idle is not None:
        shovel, link = idle
        lines += [
            "", f"An idle shovel takes {shovel['octets'] / 1024:.1f} KiB of anonymous memory (at most "
            f"{IDLE_LIMIT / 1024:.0f} KiB; {options.idle} of them), an idle federation link of an exchange "
            f"{link['octets'] / 1024:.1f} KiB; {options.idle} take {shovel['cpu']:.1%} and {link['cpu']:.1%} "
            "of a core.",
        ]
    return "\n".join([*lines, "", "```", "python -m load.shovels --idle 1000 --write", "```", ""])


def main(arguments=None):
    """``python -m load.shovels``: measure and print; with ``--write`` into the page, too."""
    parser = argparse.ArgumentParser(prog="python -m load.shovels", description=__doc__)
    keys = [row.key for row in EVERY]
    parser.add_argument("--rows", nargs="*", choices=keys, default=keys)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without RabbitMQ")
    parser.add_argument("--share", type=float, default=1.0, help="of each row's messages (%(default)s)")
    parser.add_argument("--idle", type=int, metavar="COUNT", help="memory of so many idle links, too")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args(arguments)
    options.load_before = os.getloadavg()[2]
    with tempfile.TemporaryDirectory(prefix="gomq-shovels-") as folder:
        text = document(*measured_all(folder, options), options)
    if options.write:
        page = DOCUMENT.read_text(encoding="utf-8")
        head, tail = page[:page.index(BEGIN) + len(BEGIN)], page[page.index(END):]
        DOCUMENT.write_text(f"{head}\n{text}{tail}", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
