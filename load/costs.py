"""The rows of the performance table that are no throughput: what it costs to start, to wait, to log in, to
keep connections, and what others notice of a flood.

A function here measures some of them on brokers of its own: ``make(**options)`` makes one that is not
started; it gives {key: figure}.
"""
import base64
import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from gomq_py.perf.process import cpu_seconds, memory_octets, raise_descriptor_limit
from load import logins, management
from load.brokers import BrokerFailed
from load.scenarios import QUEUE, delete_queues, figures_of, run, start
from load.veth import HOST

WAITING_COUNT = 1_000_000
CONNECTION_COUNT, GONE_COUNT = 1000, 5000
QUEUE_COUNT = 20_000
FAN, FAN_OUT = "bench-fan", 500
PAIRS = (
    "--queue-pattern bench-pair-% --queue-pattern-to 1000 --queue-args '{\"x-expires\": 60000}' --drain 2"
)
PAIRS_S = 5
# From so many messages on a share of them is more than chance.
PAIRS_LEAST = 500_000
# Names, in the environment, the command of RabbitMQ's PerfTest.
PERF_TEST = "PERF_TEST"
PERF_TEST_S = 10
PERF_TEST_TLS_S = 5
PERF_TEST_SIZES = (16, 1024, 16384)
_SETTLE_S = 1
_LOOK_S = 0.2
_GONE_S = 2
_FLOOD_S = 6
# etc/gomq.ini has no other stats_interval.
_INTERVAL_S = 5
_LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


@dataclass(frozen=True)
class Cost:
    """One figure; ``limit`` is the most it may be, or with ``is_least`` the least. ``unit`` is a key of
    ``SHOWN``.
    """

    key: str
    title: str
    limit: float
    unit: str
    measure: Callable
    is_least: bool = False
    ours: bool = False

    def better(self, figures):
        """The best of some."""
        return (max if self.is_least else min)(figures)

    def is_met(self, figure):
        """Whether it is as good as we want it to be."""
        return figure >= self.limit if self.is_least else figure <= self.limit


def octets(count):
    """As a text."""
    return (
        f"{count / 1e6:.1f} MB" if abs(count) >= 1e6 else f"{count / 1024:.1f} KiB" if abs(count) >= 1024
        else f"{count:.0f} B"
    )


SHOWN = {
    "octets": octets, "us": "{:.1f} us".format, "ms": "{:.0f} ms".format, "s": "{:.2f} s".format,
    "/s": "{:.0f}".format, "%": "{:.0f} %".format,
}


@contextlib.contextmanager
def running(broker):
    """A broker that is stopped at the end."""
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def started(make):
    """From the start of the process until it is ready, and then idle with AMQP alone."""
    with running(make()) as broker:
        cpu_s = cpu_seconds(broker.pid)
        time.sleep(_SETTLE_S)
        memory = memory_octets(broker.pid)
    return {"start": cpu_s, "idle": memory["anonymous"], "resident": memory["rss"]}


def managed(make):
    """Idle with management, before its first request and after the first answers of each kind."""
    with running(make(management=True)) as broker:
        cpu_s = cpu_seconds(broker.pid)
        time.sleep(_SETTLE_S)
        unasked = memory_octets(broker.pid)["anonymous"]
        slowest_s = max(
            fetch(port, path)[0] for port, path in (
                (broker.http_port, "/api/overview"), (broker.http_port, "/api/queues"),
                (broker.metrics_port, "/metrics"),
            )
        )
        time.sleep(_SETTLE_S)
        return {
            "start-managed": cpu_s, "idle-unasked": unasked,
            "idle-managed": memory_octets(broker.pid)["anonymous"], "first-answers": slowest_s * 1000,
        }


def connections(make):
    """Idle ones: memory of each, CPU time of a login; then what stays of five thousand."""
    raise_descriptor_limit()
    with running(make()) as broker:
        time.sleep(_SETTLE_S)
        before = memory_octets(broker.pid)["anonymous"]
        few = run(
            broker, "connection-count", f"-x {CONNECTION_COUNT} -c 1 -z 0.1 --broker-pid {broker.pid}")
        many = run(broker, "connection-count", f"-x {GONE_COUNT} -c 0 -z 0.1 --broker-pid {broker.pid}")
        time.sleep(_GONE_S)
        gone = memory_octets(broker.pid)["anonymous"]
    return {
        "connection": few["octets_per_connection"], "login": many["broker_cpu_us_per_connection"],
        "gone": gone - before,
    }


def many_logins(make):
    """Logins of some clients at once, of a program that does nothing else."""
    raise_descriptor_limit()
    with running(make()) as broker:
        rate, _ = logins.logins(broker, 2)
        return {"logins": rate, "login-together": logins.lasting(broker, GONE_COUNT)}


def many_handshakes(make):
    """The same of TLS."""
    with running(make(tls=True)) as broker:
        rate, cpu_us = logins.handshakes(broker, 2)
        return {"handshakes": rate, "handshake": cpu_us}


def waiting(make):
    """Messages that wait, and such as are not acknowledged: anonymous memory."""
    with running(make()) as broker:
        run(broker, "throughput", f"-u {QUEUE} -y 0 -C 1000 -c 100")
        before = memory_octets(broker.pid)["anonymous"]
        run(broker, "throughput", f"-u {QUEUE} -y 0 -C {WAITING_COUNT} -c 10000")
        filled = memory_octets(broker.pid)["anonymous"]
        # Acks only every two million messages, that is never; the memory is read while all are unacked.
        figures = run(
            broker, "throughput",
            f"-u {QUEUE} -x 0 -a {2 * WAITING_COUNT} -z 20 --broker-pid {broker.pid}")
        delete_queues(broker)
    taken = figures["broker_memory"]["anonymous"] - filled
    return {"waiting": filled - before, "unacked": taken / max(1, figures["consumed"])}


def pairs(make):
    """A thousand publishers, queues and consumers, while they publish: the least share that the broker had
    delivered of what it had taken in, and the queues of which it had delivered anything at the end.

    The broker is asked, because most of what publishers have written still lies in their sockets: 1.5 of
    1.6 GB, which no broker has taken in.
    """
    with running(make(management=True)) as broker:
        before = memory_octets(broker.pid)["anonymous"]
        child = start(broker, f"{PAIRS} -z {PAIRS_S} --broker-pid {broker.pid}")
        shares = [1.0]
        ends_at = None
        while child.poll() is None and (ends_at is None or time.monotonic() < ends_at):
            stats = _asked(broker, "/api/overview")["message_stats"]
            if stats["publish"] and ends_at is None:
                ends_at = time.monotonic() + PAIRS_S - _LOOK_S
            if stats["publish"] >= PAIRS_LEAST:
                shares.append(stats["deliver_get"] / stats["publish"])
            time.sleep(_LOOK_S)
        queues = _asked(broker, "/api/queues?columns=message_stats.deliver_get")
        served = sum(queue["message_stats"]["deliver_get"] > 0 for queue in queues)
        memory = figures_of(child)["broker_memory"]["most_anonymous"] - before
    return {
        "pairs-share": min(shares) * 100, "pairs-served": served / len(queues) * 100, "pairs-memory": memory
    }


def _asked(broker, path):
    return json.loads(fetch(broker.http_port, path)[1])


def perf_test(make):
    """RabbitMQ's PerfTest without options, whose publisher outruns its consumer; nothing where it is not
    installed.
    """
    command = _perf_test_command()
    if not command:
        return {}
    with running(make()) as broker:
        # of all of it: no colon
        median_us = _perf_test_figure(
            [*command, "-h", broker.uri, "-z", str(PERF_TEST_S)],
            r"consumer latency min/median/\S+ \d+/(\d+)/")
    return {"perf-test": median_us / 1000}


def perf_test_tls(make):
    """CPU time of the broker for each message that PerfTest's consumer gets over TLS, from its start to its
    end; nothing where it is not installed.
    """
    command = _perf_test_command()
    spent = {}
    for size in PERF_TEST_SIZES if command else ():
        with running(make(tls=True)) as broker:
            before_s = cpu_seconds(broker.pid)
            rate = _perf_test_figure(
                [*command, "-h", broker.amqps_uri.partition("?")[0], "-z", str(PERF_TEST_TLS_S),
                 *f"-x 1 -y 1 -aa -s {size}".split()],
                r"receiving rate avg: (\d+)")
            spent[f"perf-tls-{size}"] = (
                (cpu_seconds(broker.pid) - before_s) * 1e6 / (rate * PERF_TEST_TLS_S))
    return spent


def _perf_test_command():
    """Its words; none where it is not installed."""
    command = shlex.split(os.environ.get(PERF_TEST, "perf-test"))
    if shutil.which(command[0]) is None:
        print(f"there is no {command[0]}: {PERF_TEST} names the command", file=sys.stderr)
        return []
    return command


def _perf_test_figure(command, pattern):
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(pattern, output)
    if found is None or not int(found[1]):
        raise RuntimeError(f"PerfTest: {output[-500:]}")
    return int(found[1])


def newcomers(make):
    """The slowest login, and the slowest declare, while four publishers flood a fan-out."""
    with running(make()) as broker:
        declared = f"-e {FAN} --queue-pattern {FAN}-% --queue-pattern-to {FAN_OUT} --transient-queue"
        last = f"{FAN}-{FAN_OUT}"
        children = [start(broker, f"-x 0 -y 1 {declared} --exchange-type fanout -z 90 --timeout 60")]
        try:
            with Connection(broker.uri, timeout_s=120) as connection:
                channel = connection.channel()
                channel.queue_declare(last, durable=False)
                while not channel.queue_declare(last, durable=False).consumer_count:
                    time.sleep(0.05)
            children.append(
                start(broker, f"-x 4 -y 0 -e {FAN} -u {last} --predeclared -z 90 --drain 1 --timeout 60"))
            time.sleep(2 * _SETTLE_S)
            return _slowest(broker)
        finally:
            for child in children:
                child.kill()
                child.communicate()


def _slowest(broker):
    slowest = {"login-beside": 0.0, "declare-beside": 0.0}
    ends_at = time.monotonic() + _FLOOD_S
    number = 0
    while time.monotonic() < ends_at:
        times = [time.monotonic()]
        with Connection(broker.uri, timeout_s=120) as connection:
            channel = connection.channel()
            times.append(time.monotonic())
            channel.queue_declare(f"bench-beside-{number}", durable=True)
            times.append(time.monotonic())
        for key, began, ended in zip(slowest, times, times[1:], strict=False):
            slowest[key] = max(slowest[key], (ended - began) * 1000)
        number += 1
    return slowest


def long_list(make):
    """The list of many queues: the first viewer of an interval, and the next ones; CPU time for each queue.
    """
    with running(make(management=True)) as broker:
        management.declare_queues(broker, QUEUE_COUNT)
        time.sleep(_INTERVAL_S + 1)
        spent = []
        for _ in range(3):
            before = cpu_seconds(broker.pid)
            fetch(broker.http_port, "/api/queues")
            spent.append((cpu_seconds(broker.pid) - before) * 1e6 / QUEUE_COUNT)
    return {"list-first": spent[0], "list-next": sum(spent[1:]) / 2}


def fetch(port, path):
    """(seconds, octets) of an answer. Raises RuntimeError for any other than 200."""
    began = time.monotonic()
    connection = http.client.HTTPConnection(HOST, port, timeout=120)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=_LOGIN)
        answer = connection.getresponse()
        body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status}")
    return time.monotonic() - began, body


COSTS = (
    Cost("start", "CPU time from start to ready", 0.2, "s", started),
    Cost("idle", "anonymous memory when idle, AMQP alone", 18e6, "octets", started),
    Cost("resident", "resident when idle, AMQP alone", 38e6, "octets", started),
    Cost(
        "start-managed", "CPU time from start to ready, with the management API and the metrics", 0.2, "s",
        managed, ours=True,
    ),
    Cost(
        "idle-unasked", "anonymous memory when idle, with both, before the first request", 30e6, "octets",
        managed, ours=True,
    ),
    Cost(
        "idle-managed", "anonymous memory when idle, after the first /api/overview, /api/queues and /metrics",
        30e6, "octets", managed, ours=True,
    ),
    Cost("first-answers", "the slowest of these three answers", 300, "ms", managed, ours=True),
    Cost("connection", "an idle connection with a channel", 25 * 1024, "octets", connections),
    Cost("login", "connect and log in, CPU time (5000 connections)", 120, "us", connections),
    Cost(
        "login-together", "the same, 8 at once, by a client that costs little", 120, "us", many_logins),
    Cost("gone", "memory kept 2 s after they have closed", 10e6, "octets", connections),
    Cost("logins", "log in and close, 32 clients at once, a second", 7000, "/s", many_logins, is_least=True),
    Cost("handshake", "a TLS handshake, CPU time", 1000, "us", many_handshakes),
    Cost("handshakes", "TLS handshakes, 4 clients at once, a second", 1000, "/s", many_handshakes, True),
    Cost("waiting", "1 million waiting messages of 16 octets", 2e6, "octets", waiting),
    Cost("unacked", "an unacked message", 24, "octets", waiting),
    Cost(
        "pairs-share", "1000 publishers and 1000 consumers on 1000 queues: share of messages delivered",
        90, "%", pairs, is_least=True, ours=True,
    ),
    Cost(
        "pairs-served", "queues there with a delivery within 5 s", 90, "%", pairs,
        is_least=True, ours=True,
    ),
    Cost("pairs-memory", "peak of anonymous memory there", 60e6, "octets", pairs, ours=True),
    Cost("perf-test", "RabbitMQ's PerfTest without options: median latency", 40, "ms", perf_test),
    *(
        Cost(
            f"perf-tls-{size}", f"PerfTest over AMQPS, {size} octets: CPU time for each delivered message",
            limit_us, "us", perf_test_tls,
        )
        for size, limit_us in zip(PERF_TEST_SIZES, (2.5, 3.5, 25), strict=True)
    ),
    Cost(
        "login-beside", "slowest login beside 4 publishers that flood a fan-out to 500 queues", 100, "ms",
        newcomers,
    ),
    Cost("declare-beside", "slowest declare of a durable queue there", 100, "ms", newcomers),
    Cost(
        "list-first", "/api/queues of 20 000 queues, first viewer of an interval: CPU time a queue", 30, "us",
        long_list, ours=True,
    ),
    Cost("list-next", "the next viewers", 30, "us", long_list, ours=True),
)
COMMANDS = {
    connections: f"gomq-py-perf amqp connection-count -x {GONE_COUNT} -c 0 -z 0.1 --broker-pid PID",
    pairs: f"gomq-py-perf amqp throughput -z {PAIRS_S} {PAIRS}",
    perf_test: f"perf-test -h URL -z {PERF_TEST_S}",
    perf_test_tls: f"perf-test -h amqps://... -z {PERF_TEST_TLS_S} -x 1 -y 1 -aa -s SIZE",
    newcomers: (
        f"gomq-py-perf amqp throughput -x 0 -y 1 -e {FAN} --exchange-type fanout --queue-pattern {FAN}-% "
        f"--queue-pattern-to {FAN_OUT} --transient-queue; beside it gomq-py-perf amqp throughput -x 4 -y 0 "
        f"-e {FAN} -u {FAN}-{FAN_OUT} --predeclared"
    ),
}


def measured(makers, wanted, rounds):
    """({broker's name: {key: the best of the rounds, in turn}}, what could not be measured and why), of the
    costs in ``wanted``; ``makers``: {broker's name: (make, whether it is ours)}.
    """
    figures: dict = {name: {} for name in makers}
    faults = []
    for measure in dict.fromkeys(cost.measure for cost in wanted):
        costs = [cost for cost in wanted if cost.measure is measure]
        for _ in range(rounds):
            for name, (make, is_ours) in makers.items():
                if costs[0].ours and not is_ours:
                    continue
                try:
                    found = measure(make)
                except (RuntimeError, ClientError, OSError, BrokerFailed) as error:
                    faults.append(f"{measure.__name__}, {name}: {error}")
                    continue
                print(f"{measure.__name__} {name}: {found}", file=sys.stderr, flush=True)
                for cost in (cost for cost in costs if cost.key in found):
                    before = figures[name].get(cost.key, found[cost.key])
                    figures[name][cost.key] = cost.better((before, found[cost.key]))
    return figures, faults


def table(figures, elsewhere):
    """Lines of the page; ``elsewhere``: {key: what another broker needed where it was measured}."""
    names = list(figures)
    lines = [
        f"| cost | at most | {' | '.join(names)} | {elsewhere['']} |",
        "|---|---|" + "---|" * (len(names) + 1),
    ]
    for cost in COSTS:
        if any(cost.key in figures[name] for name in names):
            cells = [_shown(cost, figures[name].get(cost.key), name == names[0]) for name in names]
            limit = f"{'at least ' * cost.is_least}{SHOWN[cost.unit](cost.limit)}"
            lines.append(
                f"| {cost.title} | {limit} | {' | '.join(cells)} | {elsewhere.get(cost.key, '')} |")
    return lines


def _shown(cost, figure, is_judged):
    if figure is None:
        return "-"
    text = SHOWN[cost.unit](figure)
    return text if cost.is_met(figure) or not is_judged else f"*{text}*"
