"""The management rows of the performance table: what lists of ten thousand queues and readers of streams
(Spark) do to messages, and what the API costs in memory. Ours alone.
"""
import base64
import http.client
import subprocess
import sys
import time

from gomq_py.client.connection import Connection
from gomq_py.perf.process import memory_octets
from load.brokers import GomqBroker
from load.scenarios import ROOT, Row, measure
from load.veth import HOST

QUEUE_COUNT = 10_000
IDLE_LIMIT = 75e6
_SETTLE_S = 1
_STEADY = "-V -l -r 500"
STREAM = "bench-read"
STREAM_COUNT = 200_000
# (row, path that is fetched in a loop meanwhile, how nice that is)
ROWS = (
    (
        Row(
            "list", "500 messages per second while /api/queues of 10 000 queues is fetched in a loop",
            _STEADY, p99_ms=20,
        ),
        "/api/queues", 0,
    ),
    (
        Row(
            "scrape",
            "500 messages per second while /metrics/per-object of 10 000 queues is fetched in a loop",
            _STEADY, p99_ms=20,
        ),
        "/metrics/per-object", 0,
    ),
    (
        Row(
            "read",
            "500 messages per second while a stream is read over HTTP by a process with nice 19, "
            "as Spark does",
            _STEADY, p99_ms=5,
        ),
        f"/api/streams/%2F/{STREAM}/segments/1", 19,
    ),
)


def measured(folder, seconds, rounds):
    """{"idle": octets, row key: {"p50_ms", "p99_ms", "fetched", "faults"}}, the best of some rounds."""
    broker = GomqBroker(folder, management=True).start()
    try:
        time.sleep(_SETTLE_S)
        figures = {"idle": memory_octets(broker.pid)["rss"]}
        declare_queues(broker)
        fill_stream(broker)
        for row, path, niceness in ROWS:
            runs = [beside(broker, row, path, seconds, niceness) for _ in range(rounds)]
            figures[row.key] = min(runs, key=lambda run: run["p99_ms"] if run["p99_ms"] is not None else 1e9)
        return figures
    finally:
        broker.stop()


def declare_queues(broker, count=QUEUE_COUNT):
    """Many empty queues."""
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        for number in range(count):
            channel.queue_declare(f"many-{number}")


def fill_stream(broker, count=STREAM_COUNT):
    """A stream with messages of 16 octets, all flushed."""
    with Connection(broker.uri, timeout_s=120) as connection:
        channel = connection.channel()
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_select()
        channel.publish_many([("", STREAM, b"x" * 16, b"\x10\x00\x02")] * count)
        channel.wait_for_confirms(120)


def beside(broker, row, path, seconds, niceness=0):
    """One run of a row with somebody fetching the path all the while."""
    command = [
        "nice", "-n", str(niceness), sys.executable, "-m", "load.management", str(broker.http_port), path
    ]
    fetcher = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        fetcher.stdout.readline()
        figures = measure(row, broker, seconds)
    finally:
        fetcher.terminate()
        fetched = len(fetcher.communicate()[0].split())
    return {
        "p50_ms": figures["p50_ms"], "p99_ms": figures["p99_ms"], "fetched": fetched,
        "faults": figures["faults"],
    }


def table(figures):
    """The lines of the table."""
    lines = ["| management | at most | gomq-py | fetched meanwhile |", "|---|---|---|---|"]
    for row, *_ in ROWS:
        found = figures[row.key]
        p99 = (
            "-" if found["p99_ms"] is None
            else _marked(f"{found['p99_ms']:.3f}", found["p99_ms"] <= row.p99_ms)
        )
        lines.append(f"| {row.title}: p99 ms | {row.p99_ms} | {p99} | {found['fetched']} times |")
    idle = _marked(f"{figures['idle'] / 1e6:.1f} MB", figures["idle"] <= IDLE_LIMIT)
    return [
        *lines,
        (
            "| resident when idle, with the API and the metrics port open, before the first request | "
            f"{IDLE_LIMIT / 1e6:.0f} MB | {idle} | |"
        ),
    ]


def _marked(text, is_good):
    return text if is_good else f"*{text}*"


def fetch_forever(port, path):
    """Fetch a path again and again, and print a line per answer."""
    headers = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    while True:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        octets = len(answer.read())
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        print(octets, flush=True)


if __name__ == "__main__":
    fetch_forever(int(sys.argv[1]), sys.argv[2])
