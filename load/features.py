"""``python -m load.features``: what features cost beside a plain queue, for docs/performance.md;
``make bench`` runs it behind the table of loads.

Rows that ``gomq-py-perf`` can express are run with it, in turn with a plain queue and the best of the rounds
counted; delayed messages, schedules, ten thousand queues and ten thousand bindings are measured here. All of
it on our own broker, alone.
"""
import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from gomq_py.amqp.wire.methods import QueueBind, QueueDeclare
from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from gomq_py.perf.process import cpu_seconds, memory_octets
from load.brokers import GomqBroker
from load.scenarios import QUEUE, ROOT, Row, command, measure

DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- features: written by load.features -->", "<!-- end of features -->"

# What a kind of queue may cost beside its plain twin: limits of our own.
TWINS = {
    "priority": ("plain", 1.5), "ttl": ("plain", 1.25), "length": ("plain", 1.25), "limit": ("acked", 1.25),
    "stream": ("hundreds", 1.5), "groups": ("keyed", 2), "stuck": ("groups", 1.25),
}
KEYED = "-y 100 -a 1 -P 100 -e keyed --exchange-type fanout --key-count 1000"
GROUPS = {"x-message-group": "routing-key"}
GROUPED = f"{KEYED} --queue-args '{json.dumps(GROUPS)}'"
STREAM = """--queue-args '{"x-queue-type": "stream"}'"""
ROWS = (
    Row("plain", "plain queue", "-V"),
    Row(
        "priority", "x-max-priority 10, all messages on one level",
        "-V --queue-args '{\"x-max-priority\": 10}' --properties '{\"priority\": 5}'",
    ),
    Row("ttl", "x-message-ttl of an hour", "-V --queue-args '{\"x-message-ttl\": 3600000}'"),
    Row("length", "x-max-length of 100 million", "-V --queue-args '{\"x-max-length\": 100000000}'"),
    Row("acked", "plain queue, each message acked", "-V -a 1 -P 1000"),
    Row(
        "limit", "x-delivery-limit 20, each message acked",
        "-V -a 1 -P 1000 --queue-args '{\"x-delivery-limit\": 20}'",
    ),
    Row("hundreds", "plain queue, persistent, acks of 100, prefetch 1000", "-V -p -a 100 -P 1000"),
    Row("stream", "stream, the same", f"-V -p -a 100 -P 1000 {STREAM}"),
    Row("keyed", "plain queue, 1000 keys, 100 consumers with a prefetch of 100, each message acked", KEYED),
    Row("groups", "x-message-group, the same", GROUPED),
    Row("stuck", "x-message-group, the same behind the messages of a stuck group", GROUPED),
)
QUEUES = BINDINGS = 10_000
# Messages of one write, and so the confirms that are outstanding.
BATCH = 1000
BODY = bytes(16)
LEVELS = 10
# Limits of our own, for what has no twin: CPU time per message in us, octets of memory per message.
MOST_US = {"levels": 6, "hop": 3, "delayed": 5, "passed": 5, "schedules": 100, "hashed": 5}
MOST_DELAYED_OCTETS = MOST_PASSED_OCTETS = 24
MOST_SCHEDULE_OCTETS = 1500
SCHEDULES, SCHEDULES_S = 5000, 5


@dataclass
class Figure:
    """One line of the second table."""

    title: str
    value: str


def main(arguments=None):
    """Measure, print, write; exit code 1 when a load came back wrong."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="gomq-features-") as folder:
        broker = GomqBroker(folder).start()
        try:
            version = broker.version()
            runs = {row.key: [] for row in ROWS}
            for number in range(options.rounds):
                for row in ROWS:
                    with before(row, broker, options.delayed):
                        runs[row.key].append(measure(row, broker, options.seconds))
                    print(
                        f"{row.key} {number + 1}/{options.rounds}: {runs[row.key][-1]}", file=sys.stderr,
                        flush=True,
                    )
            figures = [
                *levels(broker, options.messages), *dead_letters(broker, options.messages),
                *hashed(broker, options.messages), *many_bindings(broker), *worst_topics(broker)]
        finally:
            broker.stop()
        # each on a broker that has just started: memory that was used before would hide what they take
        for work in (
            partial(delayed, count=options.delayed), partial(passed_over, count=options.delayed),
            partial(schedules, count=options.schedules), many_queues,
        ):
            broker = GomqBroker(folder).start()
            try:
                figures += work(broker)
            finally:
                broker.stop()
    text = document(runs, figures, version, options)
    print(text)
    if not options.no_write:
        _write(text)
    return 1 if any(run["faults"] for row in runs.values() for run in row) else 0


def _options(arguments):
    parser = argparse.ArgumentParser(prog="python -m load.features", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2, help="of each run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="per row (%(default)s)")
    parser.add_argument(
        "--messages", type=int, default=200_000, help="of the rows that count them (%(default)s)"
    )
    parser.add_argument("--delayed", type=int, default=1_000_000, help="messages that wait (%(default)s)")
    parser.add_argument(
        "--schedules", type=int, default=SCHEDULES, help="schedules of a second each (%(default)s)")
    parser.add_argument("--no-write", action="store_true", help="leave docs/performance.md alone")
    return parser.parse_args(arguments)


# what perf cannot express

def levels(broker, count):
    """Messages on ten levels in turn, and on one level of a plain queue, both persistent and confirmed;
    then all are taken.
    """
    figures = []
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        for name, title, arguments in (
                ("flat", "a plain queue, persistent and confirmed, then purged", {}),
                (
                    "levels", f"the same with x-max-priority {LEVELS}, a level after the other",
                    {"x-max-priority": LEVELS},
                )):
            channel.queue_declare(name, durable=True, arguments=arguments)
            wires = [Properties(delivery_mode=2, priority=number) for number in range(LEVELS)]

            def work(name=name, wires=wires):
                _publish(channel, "", lambda _: name, count, wires)
                channel.queue_purge(name)

            elapsed_s, cpu_s = _timed(broker, work)
            figures.append(Figure(
                f"{title}, {count:,} messages", _per_message(count, elapsed_s, cpu_s, MOST_US["levels"])
            ))
            channel.queue_delete(name)
    return figures


def dead_letters(broker, count):
    """Messages of 16 octets that go one hop: from a queue that takes none to the
    exchange of its dead letters.
    """
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        channel.queue_declare("hop", durable=True, arguments={
            "x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        elapsed_s, cpu_s = _timed(broker, lambda: _publish_until(channel, "", "hop", "dead", count))
        for name in ("hop", "dead"):
            channel.queue_delete(name)
    return [
        Figure(
            f"dead-letter hop, {count:,} messages that expire at once",
            _per_message(count, elapsed_s, cpu_s, MOST_US["hop"]),
        ),
    ]


def delayed(broker, count):
    """Messages that wait an hour: what keeping one costs in time and memory."""
    with Connection(broker.uri, timeout_s=300) as connection:
        channel = connection.channel()
        channel.exchange_declare(
            "later", "x-delayed-message", arguments={"x-delayed-type": "fanout"}, durable=True
        )
        before = memory_octets(broker.pid)["anonymous"]
        wire = Properties(delivery_mode=2, headers={"x-delay": 3_600_000})
        elapsed_s, cpu_s = _timed(broker, lambda: _publish(channel, "later", lambda _: "k", count, [wire]))
        octets = (memory_octets(broker.pid)["anonymous"] - before) / count
        channel.exchange_delete("later")
    kept = f"{octets:.1f} octets of memory each (at most {MOST_DELAYED_OCTETS})"
    return [
        Figure(
            f"delayed exchange, {count:,} messages stored",
            f"{_per_message(count, elapsed_s, cpu_s, MOST_US['delayed'])}, {kept}",
        ),
    ]


def before(row, broker, stuck):
    """What must be there while a row is measured, as a context."""
    return stuck_group(broker, QUEUE, stuck) if row.key == "stuck" else contextlib.nullcontext()


@contextlib.contextmanager
def stuck_group(broker, queue, count):
    """A queue that has looked at ``count`` messages of a group, the first of which is never acked."""
    with Connection(broker.uri, timeout_s=300) as connection:
        channel, other = connection.channel(), connection.channel()
        channel.queue_declare(queue, durable=True, arguments=GROUPS)
        channel.exchange_declare("stuck", "fanout", durable=True)
        channel.queue_bind(queue, "stuck")
        _publish(channel, "stuck", lambda number: "stuck" if number < count else "last", count + 1)
        channel.exchange_delete("stuck")
        for consumer in (channel, other):
            consumer.qos(1)
            consumer.consume(queue)
            delivery = consumer.next_delivery(60)
            assert delivery is not None
        assert delivery.routing_key == "last"
        other.ack(delivery.delivery_tag)
        other.close()
        yield


def passed_over(broker, count):
    """Messages that wait behind the first of their group: what publishing one and looking at it costs."""
    octets = memory_octets(broker.pid)["anonymous"]
    cpu_s, began = cpu_seconds(broker.pid), time.monotonic()
    with stuck_group(broker, "passed", count):
        elapsed_s, cpu_s = time.monotonic() - began, cpu_seconds(broker.pid) - cpu_s
        octets = (memory_octets(broker.pid)["anonymous"] - octets) / count
        with Connection(broker.uri, timeout_s=120) as connection:
            connection.channel().queue_delete("passed")
    return [
        Figure(
            f"{count:,} messages of a stuck group, published and examined",
            f"{_per_message(count, elapsed_s, cpu_s, MOST_US['passed'])}, "
            f"{octets:.1f} octets of memory each (at most {MOST_PASSED_OCTETS})"),
    ]


def schedules(broker, count):
    """Schedules of a second each: what keeping one costs in memory, and each message that goes out."""
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        channel.exchange_declare(
            "repeating", "x-delayed-message", arguments={"x-delayed-type": "fanout"}, durable=True)
        channel.queue_declare("sent", durable=True)
        channel.queue_bind("sent", "repeating")
        octets = memory_octets(broker.pid)["anonymous"]
        _publish(channel, "repeating", lambda _: "k", count, [
            Properties(delivery_mode=2, headers={"x-schedule": {"name": str(number), "every": 1000}})
            for number in range(count)])
        octets = (memory_octets(broker.pid)["anonymous"] - octets) / count
        channel.consume("sent", no_ack=True)
        for _ in range(count):  # the first second is that of the publishes
            assert channel.next_delivery(60) is not None
        sent = 0

        def take():
            nonlocal sent
            ends_at = time.monotonic() + SCHEDULES_S
            while time.monotonic() < ends_at:
                sent += channel.next_delivery(60) is not None

        elapsed_s, cpu_s = _timed(broker, take)
        channel.exchange_delete("repeating")
        channel.queue_delete("sent")
    return [
        Figure(
            f"{count:,} schedules of a second each, a message that goes out",
            f"{_per_message(sent, elapsed_s, cpu_s, MOST_US['schedules'])}, {octets:.0f} octets of memory "
            f"for each schedule (at most {MOST_SCHEDULE_OCTETS})"),
    ]


def hashed(broker, count):
    """A consistent hash exchange over ten queues, a thousand keys."""
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        channel.exchange_declare("hash", "x-consistent-hash", durable=True)
        for number in range(10):
            channel.queue_declare(f"hash{number}", durable=True)
            channel.queue_bind(f"hash{number}", "hash", "10")
        elapsed_s, cpu_s = _timed(
            broker, lambda: _publish(channel, "hash", lambda number: f"key{number % 1000}", count)
        )
        for number in range(10):
            channel.queue_delete(f"hash{number}")
        channel.exchange_delete("hash")
    return [
        Figure(
            "consistent hash over 10 queues, 1000 keys",
            _per_message(count, elapsed_s, cpu_s, MOST_US["hashed"]),
        ),
    ]


def many_bindings(broker):
    """Ten thousand bindings of a topic exchange to one queue, and a publish among them."""
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        channel.exchange_declare("many", "topic", durable=True)
        channel.queue_declare("bound", durable=True)
        before = memory_octets(broker.pid)["anonymous"]

        def bind():
            for number in range(BINDINGS - 1):
                channel.send(
                    QueueBind(queue="bound", exchange="many", routing_key=f"a.{number}.*.c", no_wait=True)
                )
            channel.queue_bind("bound", "many", "last")

        elapsed_s, cpu_s = _timed(broker, bind)
        octets = (memory_octets(broker.pid)["anonymous"] - before) / BINDINGS
        published_s, published_cpu_s = _timed(
            broker, lambda: _publish(channel, "many", lambda number: f"a.{number % BINDINGS}.b.c", 50_000)
        )
        channel.exchange_delete("many")
        channel.queue_delete("bound")
    return [
        Figure(
            f"{BINDINGS:,} durable bindings of one topic exchange",
            f"{elapsed_s:.2f} s, {cpu_s * 1e6 / BINDINGS:.0f} us of CPU and {octets:.0f} octets each"),
        Figure(
            f"a publish to that exchange, {BINDINGS:,} keys in turn",
            _per_message(50_000, published_s, published_cpu_s),
        ),
    ]


def worst_topics(broker):
    """Patterns of many # and *, and a key of as many words as fit:
    every node of the trie is looked at once per word, at the worst.
    """
    words = 40
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        channel.exchange_declare("worst", "topic", durable=True)
        channel.queue_declare("bound", durable=True)
        for words_of_pattern in product("a*#", repeat=8):
            channel.send(QueueBind(
                queue="bound", exchange="worst", routing_key=".".join((*words_of_pattern, "end")),
                no_wait=True,
            ))
        channel.queue_bind("bound", "worst", "#.end")
        elapsed_s, cpu_s = _timed(
            broker, lambda: _publish(channel, "worst", lambda number: f"{'a.' * words}{number}", 500)
        )
        channel.exchange_delete("worst")
        channel.queue_delete("bound")
    return [
        Figure(
            f"a new key of {words} words against the {3 ** 8:,} patterns of eight words a, * or #",
            _per_message(500, elapsed_s, cpu_s),
        ),
    ]


def many_queues(broker):
    """Ten thousand durable queues."""
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        channel.queue_declare("first", durable=True)
        before = memory_octets(broker.pid)["rss"]

        def declare():
            for number in range(QUEUES - 1):
                channel.send(QueueDeclare(queue=f"many{number}", durable=True, no_wait=True))
            channel.queue_declare("last", durable=True)

        elapsed_s, cpu_s = _timed(broker, declare)
        octets = (memory_octets(broker.pid)["rss"] - before) / QUEUES
    return [Figure(
        f"{QUEUES:,} durable queues declared",
        f"{elapsed_s:.2f} s, {cpu_s * 1e6 / QUEUES:.0f} us of CPU and {octets / 1024:.1f} KiB "
        "resident each (at most 10 KiB)")]


def _publish(channel, exchange, key_of, count, wires=(Properties(delivery_mode=2),)):
    """Publish persistent messages of 16 octets, with these properties in turn, 1000 confirms outstanding,
    and wait for the last.
    """
    wires = [wire.encode() for wire in wires]
    channel.confirm_select()
    for start in range(0, count, BATCH):
        channel.publish_many([
            (exchange, key_of(number), BODY, wires[number % len(wires)])
            for number in range(start, min(start + BATCH, count))])
        channel.wait_for_confirms()


def _publish_until(channel, exchange, key, queue, count):
    _publish(channel, exchange, lambda _: key, count)
    deadline = time.monotonic() + 120
    while channel.queue_declare(queue, passive=True).message_count < count and time.monotonic() < deadline:
        time.sleep(0.01)


def _timed(broker, work):
    """(seconds, the broker's CPU seconds) that the work took."""
    cpu_s, began = cpu_seconds(broker.pid), time.monotonic()
    work()
    return time.monotonic() - began, cpu_seconds(broker.pid) - cpu_s


def _per_message(count, elapsed_s, cpu_s, most_us=None):
    limit = "" if most_us is None else f" (at most {most_us})"
    return f"{cpu_s * 1e6 / count:.1f} us of CPU each{limit}, {count / elapsed_s:,.0f} a second"


# the page

def document(runs, figures, version, options):
    """The generated part of docs/performance.md."""
    best = {
        row.key: min((run["cpu_us"] for run in runs[row.key] if run["cpu_us"]), default=None) for row in ROWS
    }
    lines = [
        (
            f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} processors, {version}; best of {options.rounds} "
            f"rounds of {options.seconds:g} s. Load average of the quarter of an hour before: "
            f"{os.getloadavg()[2]:.1f}."
        ),
        "",
        (
            "| queue, 16 octets, 1 publisher, 1 consumer unless stated otherwise | CPU us per message "
            "| beside its plain twin | at most |"
        ),
        "|---|---|---|---|",
    ]
    for row in ROWS:
        twin, most = TWINS.get(row.key, (row.key, None))
        if best[row.key] and best[twin]:
            lines.append(
                f"| {row.title} | {best[row.key]:.2f} | {best[row.key] / best[twin]:.2f} | {most or ''} |"
            )
    lines += [
        "", "| what | figures |", "|---|---|",
        *(f"| {figure.title} | {figure.value} |" for figure in figures), "", "```",
    ]
    return "\n".join(
        [*lines, *(f"{row.key + ':':10}{command(row, options.seconds)}" for row in ROWS), "```"]
    ) + "\n"


def _write(text):
    page = Path(DOCUMENT).read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    Path(DOCUMENT).write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
