"""``make bench-scaling``: how cost grows with the number of consumers, bindings, queues, messages and
connections, as plots in docs/images and a table in docs/performance.md.

One run for each size, on a broker of its own. What rises on these plots costs more for each when there are
more of it.
"""
import argparse
import os
import random
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gomq_py.amqp.wire.methods import QueueBind
from gomq_py.client.connection import Connection
from gomq_py.hub.admission import DESCRIPTORS_SHARE
from gomq_py.perf.process import cpu_seconds, memory_octets, raise_descriptor_limit
from load.bench import DOCUMENT, circumstances, write
from load.brokers import ROOT, GomqBroker
from load.costs import running
from load.plot import log_plot, number
from load.scenarios import QUEUE, run

BEGIN, END = "<!-- scaling: written by python -m load.scaling -->", "<!-- end of scaling -->"
IMAGES = ROOT / "docs" / "images"
PUBLISHES = 50_000
# Descriptors of the generator for what are no connections, and connections that the load is not made of.
SPARE_DESCRIPTORS, SPARE_CONNECTIONS = 500, 10


@dataclass(frozen=True)
class Growth:
    """``measure(broker, size)`` gives {name of a line: figure}; ``known`` has lines that are not measured
    here.
    """

    key: str
    title: str
    x_title: str
    sizes: tuple
    measure: Callable
    known: dict


def consumers(broker, size):
    """Consumers of one queue, one publisher, 16 octets."""
    figures = run(
        broker, "throughput", f"-u {QUEUE} -V -y {size} -z 3 --timeout 120 --broker-pid {broker.pid}")
    return {"CPU us per message": figures["broker_cpu_us_per_message"]}


def bindings(broker, size):
    """Topic bindings of one queue, and publishes with keys in turn, each of which one of them matches."""
    draw = random.Random(1)
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        channel.exchange_declare("grown", "topic", durable=True)
        channel.queue_declare(QUEUE, durable=True)
        before = cpu_seconds(broker.pid)
        for each in range(size - 1):
            channel.send(QueueBind(queue=QUEUE, exchange="grown", routing_key=f"a.{each}.*.c", no_wait=True))
        channel.queue_bind(QUEUE, "grown", f"a.{size - 1}.*.c")
        bound = cpu_seconds(broker.pid)
        channel.confirm_select()
        for _ in range(0, PUBLISHES, 1000):
            channel.publish_many(
                [("grown", f"a.{draw.randrange(size)}.b.c", bytes(16), b"\0\0") for _ in range(1000)])
            channel.wait_for_confirms()
        published = cpu_seconds(broker.pid)
    return {
        "CPU us of a binding": (bound - before) * 1e6 / size,
        "CPU us of a publish": (published - bound) * 1e6 / PUBLISHES,
    }


def queues(broker, size):
    """Durable queues without messages."""
    before, memory = cpu_seconds(broker.pid), memory_octets(broker.pid)["anonymous"]
    run(broker, "queue-count", f"-q {size} -n --timeout 300 -u grown")
    return {
        "CPU us to declare one": (cpu_seconds(broker.pid) - before) * 1e6 / size,
        "octets of memory each": (memory_octets(broker.pid)["anonymous"] - memory) / size,
    }


def depth(broker, size):
    """Persistent messages of 16 octets, confirmed, in one queue, and then consumed."""
    before, memory = cpu_seconds(broker.pid), memory_octets(broker.pid)["anonymous"]
    run(broker, "throughput", f"-u {QUEUE} -y 0 -p -c 10000 -C {size} --drain 120")
    filled = cpu_seconds(broker.pid)
    growth = memory_octets(broker.pid)["anonymous"] - memory
    run(broker, "throughput", f"-u {QUEUE} -x 0 -a 100 -P 1000 -D {size} -z 300")
    return {
        "CPU us to publish one": (filled - before) * 1e6 / size,
        "CPU us to consume one": (cpu_seconds(broker.pid) - filled) * 1e6 / size,
        "octets of memory each": growth / size,
    }


def connections(broker, size):
    """Idle connections with a channel each."""
    figures = run(
        broker, "connection-count", f"-x {size} -c 1 -z 0.1 --timeout 60 --broker-pid {broker.pid}")
    return {
        "CPU us to log in": figures["broker_cpu_us_per_connection"],
        "octets of memory each": figures["octets_per_connection"],
    }


GROWTHS = (
    Growth(
        "consumers", "Consumers of one queue, 16 octets", "consumers", (1, 10, 100, 1000, 10_000), consumers,
        {"LavinMQ 2.9.1, elsewhere": [(1, 0.99), (10, 1.0), (100, 1.0), (1000, 2.0)]},
    ),
    Growth("bindings", "Topic bindings", "bindings", (10, 100, 1000, 10_000, 100_000), bindings, {}),
    Growth("queues", "Durable queues", "queues", (100, 1000, 10_000, 100_000), queues, {}),
    Growth(
        "depth", "Messages in a queue, persistent and confirmed, 16 octets", "messages",
        (10_000, 100_000, 1_000_000, 10_000_000), depth, {},
    ),
    Growth(
        "connections", "Idle connections", "connections", (100, 1000, 5000, 10_000, 20_000), connections, {}),
)


def main(arguments=None):
    """Measure, draw, write."""
    options = _options(arguments)
    load_before = os.getloadavg()[2]
    raise_descriptor_limit()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = ["| what grows | of each | " + "at 1, 10, 100, ... |", "|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="gomq-scaling-") as folder:
        make = partial(GomqBroker, folder)
        with running(make()) as broker:
            version = {broker.name: broker.version()}
        for growth in GROWTHS:
            if options.only and growth.key not in options.only:
                continue
            series = measured(growth, make, options.most)
            picture = log_plot(growth.title, growth.x_title, {**series, **growth.known})
            (options.out / f"scaling-{growth.key}.svg").write_text(picture, encoding="utf-8")
            for name, line in series.items():
                figures = ", ".join(f"{number(size)}: {number(figure)}" for size, figure in line)
                lines.append(f"| {growth.title} | {name} | {figures} |")
    pictures = [f"![{growth.title}](images/scaling-{growth.key}.svg)" for growth in GROWTHS]
    text = "\n".join([
        circumstances(version, "one run for each size", load_before), "", *lines, "", *pictures, ""])
    print(text)
    if options.out == IMAGES and not options.only:
        write(text, BEGIN, END)


def measured(growth, make, most):
    """{name of a line: [(size, figure), ...]} of the sizes up to ``most``, of what can be seen."""
    series: dict = {}
    for size in growth.sizes:
        size = min(size, _possible(growth.key))
        if size > most:
            break
        try:
            with running(make()) as broker:
                figures = growth.measure(broker, size)
        except RuntimeError as error:  # the plot ends before what this machine does not do
            print(f"{growth.key} {size}: {error}", file=sys.stderr, flush=True)
            break
        print(f"{growth.key} {size}: {figures}", file=sys.stderr, flush=True)
        for name, figure in figures.items():
            if figure > 0:
                series.setdefault(name, []).append((size, figure))
    return series


def _possible(key):
    """How many the descriptors of this machine allow, of which the broker keeps a share for files."""
    if key not in ("connections", "consumers"):
        return 1 << 62
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return min(descriptors - SPARE_DESCRIPTORS, int(descriptors * DESCRIPTORS_SHARE) - SPARE_CONNECTIONS)


def _options(arguments):
    parser = argparse.ArgumentParser(prog="python -m load.scaling", description=__doc__)
    parser.add_argument("--only", nargs="*", help=" ".join(growth.key for growth in GROWTHS))
    parser.add_argument("--most", type=int, default=10_000_000, help="the largest size (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=IMAGES,
        help=f"folder of the plots; with another one {DOCUMENT.name} is left alone (%(default)s)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
