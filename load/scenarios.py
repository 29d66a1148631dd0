"""The rows of the performance table: what is run, what it may cost the broker,
and how to measure it on any broker.
"""
import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gomq_py.client.connection import Connection
from gomq_py.perf.process import memory_octets

ROOT = Path(__file__).resolve().parent.parent
QUEUE = "bench"
WAITING_COUNT = 1_000_000
CONNECTION_COUNT = 1000
STREAM = """--queue-args '{"x-queue-type": "stream"}'"""
_SETTLE_S = 1


@dataclass(frozen=True)
class Row:
    """One load.

    ``arguments`` are those of ``gomq-py-perf PROTOCOL throughput``; limits are None where the row has none.

    A run takes ``least_s`` seconds, or more.

    ``cpu_us`` is the most CPU time per message, ``rate`` the least rate on a quiet machine, ``p50_ms`` and
    ``p99_ms`` the highest latencies. ``flood`` are the arguments of a second load on another queue that runs
    all the while.
    """

    key: str
    title: str
    arguments: str
    cpu_us: float | None = None
    rate: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    flood: str = ""
    protocol: str = "amqp"
    least_s: float = 0


ROWS = (
    Row("small", "1 publisher, 1 consumer, 16 octets, automatic acks", "-V", 0.40, 2e6),
    Row("four", "4 publishers, 4 consumers, one queue, 16 octets", "-V -x 4 -y 4", 0.40, 2e6),
    Row("kilo", "1 publisher, 1 consumer, 1 KiB", "-V -s 1024", 2.5, 350e3),
    Row(
        "confirms", "persistent, confirms (window 2000), acks of 100, prefetch 1000",
        "-V -p -c 2000 -a 100 -P 1000", 1.0, 600e3,
    ),
    Row(
        "each", "persistent, confirms (window 1000), each message acked, prefetch 1000",
        "-V -p -c 1000 -a 1 -P 1000", 3.0, 150e3,
    ),
    Row(
        "topic", "topic exchange, 100 bindings, 1000 keys, 16-512 octets, 5 headers",
        "-V -e bench-topic --exchange-type topic --binding-count 100 --key-count 1000 "
        "-s 16-512 --header-count 5",
        3.0, 250e3,
    ),
    Row(
        "stream", "stream, 1 publisher, 1 reader, acks of 100, prefetch 1000",
        f"-V -p -a 100 -P 1000 {STREAM}", 1.0, 500e3,
    ),
    Row(
        "stream-10", "stream, 20 000 messages per second to each of 10 readers",
        f"-p -a 100 -P 1000 -y 10 -r 20000 {STREAM}", 3.0, 190e3,
    ),
    Row(
        "stream-100", "stream, 2 000 messages per second to each of 100 readers",
        f"-p -a 100 -P 1000 -y 100 -r 2000 {STREAM}", 3.0, 190e3,
    ),
    Row("segments", "one message per TCP segment", "-V --write-octets 1", None, 150e3),
    Row("steady", "10 000 messages per second", "-V -l -r 10000", p50_ms=0.15, p99_ms=1.0),
    Row(
        "quiet", "500 messages per second beside a flood on another queue", "-V -l -r 500", p99_ms=5.0,
        flood="-x 2 -y 2",
    ),
)
MQTT_ROWS = tuple(
    Row(f"mqtt-{key}", title, arguments, cpu_us, protocol="mqtt", least_s=40 if key == "devices" else 0)
    for key, title, arguments, cpu_us in (
        ("small", "QoS 0, 1 publisher, 1 subscriber, 16 octets", "-V", 0.30),
        ("four", "QoS 0, 4 pairs, 16 octets", "-V --topic-pattern bench/% --topic-pattern-to 4", 0.30),
        ("kilo", "QoS 0, 1 publisher, 1 subscriber, 1 KiB", "-V -s 1024", 1.5),
        ("fan-out", "QoS 0, 1 publisher, 8 subscribers, 16 octets (per delivery)", "-y 8", 0.30),
        ("segments", "QoS 0, one packet per TCP segment", "-V --write-octets 1", 1.5),
        ("qos-1", "QoS 1, window 100, to a session that lasts", "-V --qos 1 -c 100 -p", 3.0),
        ("qos-2", "QoS 2, window 100, to a session that lasts", "-V --qos 2 -c 100 -p", 6.0),
        (
            "devices", "10 000 devices that publish once in 10 s each, one subscriber",
            "-x 10000 -y 1 --own-topics -r 0.1", 25.0,
        ),
    )
)


def command(row, seconds):
    """The row's command as a user types it."""
    return f"gomq-py-perf {row.protocol} throughput -z {max(seconds, row.least_s):g} {row.arguments}"


def measure_mqtt(row, broker, seconds):
    """As ``measure``, over MQTT."""
    output, errors = start(
        broker,
        f"-z {max(seconds, row.least_s):g} --drain 120 --broker-pid {broker.pid} {row.arguments}",
        "throughput", "mqtt",
    ).communicate()
    figures = json.loads(output) if output else {"faults": [errors.strip()]}
    return {
        "cpu_us": figures.get("broker_cpu_us_per_message"), "rate": figures.get("avg_consume_rate"),
        "p50_ms": None, "p99_ms": None, "generator_us": figures.get("generator_cpu_us_per_message"),
        "faults": figures["faults"],
    }


def measure(row, broker, seconds):
    """{"cpu_us", "rate", "p50_ms", "p99_ms", "generator_us",
    "faults"} of one run on a broker with an empty queue.
    """
    flood = None
    if row.flood:
        flood = start(broker, f"-u {QUEUE}-flood -z {seconds + 2:g} --drain 1 {row.flood}")
        time.sleep(_SETTLE_S)
    try:
        output, errors = start(
            broker, f"-u {QUEUE} -z {seconds:g} --drain 120 --broker-pid {broker.pid} {row.arguments}"
        ).communicate()
        figures = json.loads(output) if output else {"faults": [errors.strip()]}
    finally:
        if flood is not None:
            flood.communicate()
        delete_queues(broker)
    return {
        "cpu_us": figures.get("broker_cpu_us_per_message") if not row.flood else None,
        "rate": figures.get("avg_consume_rate"),
        "p50_ms": figures.get("latency_median_ms"), "p99_ms": figures.get("latency_p99_ms"),
        "generator_us": figures.get("generator_cpu_us_per_message"), "faults": figures["faults"],
    }


def measure_memory(broker):
    """Octets: {"idle", "connection", "waiting", "unacked"}: resident when idle, then anonymous memory per
    connection, for a million waiting messages of 16 octets, and for each unacked one. The broker has just
    been started."""
    time.sleep(_SETTLE_S)
    memory = {"idle": memory_octets(broker.pid)["rss"]}
    output, _ = _run(
        broker, "connection-count", f"-x {CONNECTION_COUNT} -c 1 -z 0.1 --broker-pid {broker.pid}"
    )
    memory["connection"] = json.loads(output)["octets_per_connection"]
    time.sleep(_SETTLE_S)
    before = memory_octets(broker.pid)["anonymous"]
    _run(broker, "throughput", f"-u {QUEUE} -y 0 -C {WAITING_COUNT} -c 10000")
    waiting = memory_octets(broker.pid)["anonymous"]
    memory["waiting"] = waiting - before
    # Acks only every two million messages, that is never; the memory is read while all are unacked.
    output, _ = _run(
        broker, "throughput", f"-u {QUEUE} -x 0 -a {2 * WAITING_COUNT} -z 20 --broker-pid {broker.pid}"
    )
    figures = json.loads(output)
    memory["unacked"] = (figures["broker_memory"]["anonymous"] - waiting) / max(1, figures["consumed"])
    delete_queues(broker)
    return memory


def delete_queues(broker):
    """Leave the broker empty."""
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        for queue in (QUEUE, f"{QUEUE}-flood"):
            channel.queue_delete(queue)


def start(broker, arguments, scenario="throughput", protocol="amqp"):
    """gomq-py-perf against a broker, as a process that prints JSON."""
    full = [
        sys.executable, "-m", "gomq_py.perf", protocol, scenario, "--uri",
        broker.uri if protocol == "amqp" else broker.mqtt_uri, "-j", *shlex.split(arguments),
    ]
    return subprocess.Popen(full, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run(broker, scenario, arguments):
    child = start(broker, arguments, scenario)
    output, errors = child.communicate()
    if child.returncode:
        raise RuntimeError(f"gomq-py-perf amqp {scenario} {arguments}: {errors or output}")
    return output, errors
