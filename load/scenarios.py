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

ROOT = Path(__file__).resolve().parent.parent
QUEUE = "bench"
STREAM = """--queue-args '{"x-queue-type": "stream"}'"""
_SETTLE_S = 1


@dataclass(frozen=True)
class Row:
    """One load.

    ``arguments`` are those of ``gomq-py-perf PROTOCOL throughput``; limits are None where the row has none.
    ``protocol``: "amqps" is AMQP over TLS.

    A run takes ``least_s`` seconds, or more.

    ``cpu_us`` is the most CPU time per message, ``rate`` the least rate on a quiet machine, ``p50_ms`` and
    ``p99_ms`` the highest latencies: of ``latency``, "latency" from publish to delivery or "confirm_latency".
    With ``body_octets`` CPU time is in nanoseconds for each octet of such bodies. ``flood`` are the arguments
    of a second load on another queue that runs all the while, ``first`` those of ``gomq-py-perf amqp`` for
    what is made before. ``ours``: others do not have it.
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
    latency: str = "latency"
    body_octets: int = 0
    first: str = ""
    ours: bool = False

    @property
    def is_latency(self):
        """Whether it is about latencies."""
        return self.p50_ms is not None or self.p99_ms is not None


ROWS = (
    Row("small", "1 publisher, 1 consumer, 16 octets, automatic acks", "-V", 0.12, 2e6),
    Row("four", "4 publishers, 4 consumers, one queue, 16 octets", "-V -x 4 -y 4", 0.40, 2e6),
    Row("kilo", "1 publisher, 1 consumer, 1 KiB", "-V -s 1024", 0.9, 350e3),
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
        f"-V -p -a 100 -P 1000 {STREAM}", 0.4, 500e3,
    ),
    Row(
        "stream-10", "stream, 20 000 messages per second to each of 10 readers",
        f"-p -a 100 -P 1000 -y 10 -r 20000 {STREAM}", 3.0, 190e3,
    ),
    Row(
        "stream-100", "stream, 2 000 messages per second to each of 100 readers",
        f"-p -a 100 -P 1000 -y 100 -r 2000 {STREAM}", 3.0, 190e3,
    ),
    Row("writes", "one write per message", "-V --write-octets 1 --mergeable", 0.7, 850e3),
    Row("segments", "one message per TCP segment", "-V --write-octets 1", 0.7, 850e3),
    Row("publish", "publish only, 16 octets", "-y 0", 0.15),
    Row("consumers-100", "100 consumers of one queue, 16 octets", "-V -y 100", 0.3, 1e6),
    Row("consumers-1000", "1000 consumers of one queue, 16 octets", "-V -y 1000", 0.6, 1e6),
    Row(
        "topic-mixed", "topic exchange, 6 bindings, 1000 keys, 10 sizes in turn, headers in every second",
        "-V -e bench-mixed --exchange-type topic --binding-count 6 --key-count 1000 "
        "-s 16,64,100,256,512,1024,200,48,4096,128 --header-count 5 --header-every 2",
        0.7,
    ),
    Row(
        "dead-letters", "expire at once, dead-letter, consume: 16 octets", "-V -k bench-expired-0", 1.5,
        first="queue-count -q 1 -u bench-expired --arguments '" + json.dumps({
            "x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": QUEUE,
        }) + "'",
    ),
    Row(
        "delayed", "exchange of delayed messages, a second each, 16 octets, persistent",
        "-p -e bench-later --exchange-type x-delayed-message "
        """--exchange-args '{"x-delayed-type": "direct"}' --properties '{"headers": {"x-delay": 1000}}'""",
        5.0, ours=True,
    ),
    Row("mebi", "persistent, 1 MiB, confirms (window 10)", "-V -p -s 1048576 -c 10", 1500),
    Row(
        "body-16", "bodies of 16 MiB (ns of CPU time per octet)", "-V -s 16777216", 1.0,
        body_octets=16 << 20,
    ),
    Row(
        "body-128", "bodies of 128 MiB (ns of CPU time per octet)", "-V -s 134217728", 1.0,
        body_octets=128 << 20,
    ),
    *(
        Row(
            f"tls-{size}", f"AMQPS, {size} octets, a TLS record for each publish",
            f"-V -s {size} --write-octets 1", cpu_us, rate, protocol="amqps",
        )
        for size, cpu_us, rate in ((16, 2.5, 150e3), (1024, 3.5, None), (16384, 25, None))
    ),
    Row("steady", "10 000 messages per second", "-V -l -r 10000", p50_ms=0.15, p99_ms=1.0),
    Row(
        "steady-5", "10 000 messages per second, five at a time", "-V -l -r 10000 --burst 5", 8,
        p50_ms=0.15, p99_ms=1.0,
    ),
    Row(
        "quiet", "500 messages per second beside a flood on another queue", "-V -l -r 500", p99_ms=2.0,
        flood="-x 2 -y 2",
    ),
    *(
        Row(
            f"durable{key}{suffix}", f"10 000 persistent messages per second, {title}each acked: {what}",
            f"-V -l -p -r 10000 -c 1000 -a 1 -P 1000{burst}", 25, p50_ms=p50_ms, p99_ms=p99_ms,
            latency=latency,
        )
        for suffix, what, latency, p50_ms, p99_ms in (
            ("", "delivery", "latency", 0.25, 1.5),
            ("-confirm", "confirm", "confirm_latency", 0.5, 3),
        )
        for key, title, burst in (
            ("", "confirmed, ", ""), ("-5", "five at a time, confirmed, ", " --burst 5"),
        )
    ),
    Row(
        "outrun", "a publisher without a pause, a consumer that is slower, each acked",
        "-l -a 1", p50_ms=100, least_s=5,
    ),
)
MQTT_ROWS = tuple(
    Row(f"mqtt-{key}", title, arguments, cpu_us, protocol="mqtt", least_s=40 if key == "devices" else 0)
    for key, title, arguments, cpu_us in (
        ("small", "QoS 0, 1 publisher, 1 subscriber, 16 octets", "-V", 0.30),
        ("four", "QoS 0, 4 pairs, 16 octets", "-V --topic-pattern bench/% --topic-pattern-to 4", 0.30),
        ("kilo", "QoS 0, 1 publisher, 1 subscriber, 1 KiB", "-V -s 1024", 1.5),
        ("fan-out", "QoS 0, 1 publisher, 8 subscribers, 16 octets (per delivery)", "-y 8", 0.30),
        ("writes", "QoS 0, one write per packet", "-V --write-octets 1 --mergeable", 1.5),
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
    """The row's command as a user types it, with what comes before and runs beside it."""
    return "".join((
        f"gomq-py-perf amqp {row.first}; " if row.first else "",
        "gomq-py-perf mqtt" if row.protocol == "mqtt" else "gomq-py-perf amqp", " throughput",
        " --uri amqps://..." if row.protocol == "amqps" else "",
        f" -z {max(seconds, row.least_s):g} {row.arguments}",
        f"   (beside: {row.flood})" if row.flood else "",
    ))


def measure_mqtt(row, broker, seconds):
    """As ``measure``, over MQTT. A lost message is a fault at QoS 0, too."""
    output, errors = start(
        broker,
        f"-z {max(seconds, row.least_s):g} --drain 120 --broker-pid {broker.pid} {row.arguments}",
        "throughput", "mqtt",
    ).communicate()
    figures = json.loads(output) if output else {"faults": [errors.strip()]}
    if figures.get("lost"):
        figures["faults"].append(f"{figures['lost']} messages lost")
    return {
        "cpu_us": figures.get("broker_cpu_us_per_message"), "rate": figures.get("avg_consume_rate"),
        "p50_ms": None, "p99_ms": None, "p999_ms": None,
        "generator_us": figures.get("generator_cpu_us_per_message"),
        "faults": figures["faults"],
    }


def measure(row, broker, seconds):
    """{"cpu_us", "rate", "p50_ms", "p99_ms", "p999_ms", "generator_us",
    "faults"} of one run on a broker with an empty queue.
    """
    flood = None
    seconds = max(seconds, row.least_s)
    if row.first:
        run(broker, *row.first.split(" ", 1))
    if row.flood:
        flood = start(broker, f"-u {QUEUE}-flood -z {seconds + 2:g} --drain 1 {row.flood}")
        time.sleep(_SETTLE_S)
    try:
        output, errors = start(
            broker, f"-u {QUEUE} -z {seconds:g} --drain 120 --broker-pid {broker.pid} {row.arguments}",
            protocol=row.protocol,
        ).communicate()
        figures = json.loads(output) if output else {"faults": [errors.strip()]}
    finally:
        if flood is not None:
            flood.communicate()
        delete_queues(broker)
    cpu_us = figures.get("broker_cpu_us_per_message") if not row.flood else None
    return {
        "cpu_us": cpu_us * 1000 / row.body_octets if cpu_us and row.body_octets else cpu_us,
        "rate": figures.get("avg_consume_rate") or figures.get("avg_pub_rate"),
        "p50_ms": figures.get(f"{row.latency}_median_ms"), "p99_ms": figures.get(f"{row.latency}_p99_ms"),
        "p999_ms": figures.get(f"{row.latency}_p999_ms"),
        "generator_us": figures.get("generator_cpu_us_per_message"), "faults": figures["faults"],
    }


def delete_queues(broker):
    """Leave the broker empty."""
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        for queue in (QUEUE, f"{QUEUE}-flood", f"{QUEUE}-expired-0"):
            channel.queue_delete(queue)


def start(broker, arguments, scenario="throughput", protocol="amqp"):
    """gomq-py-perf against a broker, as a process that prints JSON."""
    uri = {"amqp": "uri", "amqps": "amqps_uri", "mqtt": "mqtt_uri"}[protocol]
    full = [
        sys.executable, "-m", "gomq_py.perf", protocol.removesuffix("s"), scenario, "--uri",
        getattr(broker, uri), "-j", *shlex.split(arguments),
    ]
    return subprocess.Popen(full, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(broker, scenario, arguments):
    """The figures of ``gomq-py-perf amqp``. Raises RuntimeError where it fails."""
    return figures_of(start(broker, arguments, scenario))


def figures_of(child):
    """What a ``start``ed one prints at its end. Raises RuntimeError where it fails."""
    output, errors = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{shlex.join(child.args[2:])}: {errors or output}")
    return json.loads(output)
