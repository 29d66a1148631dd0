"""make bench-spark: what reading a stream through Spark costs, against what is wanted of it (docs/spark.md).

    python -m load.spark [--rows 2000000] [--runs 3] [--master 'local[2]']

Rows of 16 octets and of 1 KiB: by the reader alone, in rows per CPU second; through Spark to noop and to
Parquet; what the broker pays for serving them; how long messages of a steady queue take while a reader with
nice 19 reads; and how long a message of 5000 a second waits for the batch that it is in. The best of the runs
counts, and runs of different kinds alternate.

    python -m load.spark --memory 10000000

What the processes of a bronze job with 1 GiB for the driver take together at most,
over so many messages of 16 octets.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from gomq_py.client.connection import Connection
from gomq_py.spark import rows
from gomq_py.spark.http_transport import HttpTransport
from gomq_py.spark.offsets import Position
from gomq_py.spark.options import Credentials, Options
from gomq_py.spark.planning import Planner, end_position
from gomq_py.spark.reading import PieceReader
from gomq_py.testing.brokers import ChildBroker

SIZES = {"16 B": 16, "1 KiB": 1024}
WANTED = {
    ("reader alone", "16 B"): 1_000_000, ("reader alone", "1 KiB"): 500_000, ("noop", "16 B"): 400_000,
    ("noop", "1 KiB"): 60_000,
    ("parquet", "16 B"): 120_000, ("parquet", "1 KiB"): 15_000}
COLUMNS = tuple(name for name in rows.DDL if name not in ("headers", "epoch"))
AT_ONCE = 500
BESIDE_P99_MS = 5.0
MEMORY_LIMIT = 2e9
LIVE_RATE = 5000
LIVE_WAIT_S = 1.5
# Of a live run: until queries have settled, and measured.
LIVE_BEGINNING_S, LIVE_S = 10, 20
PUBLISH_EVERY_S = 0.02
LOOK_EVERY_S = 0.2


def fill(broker, name, size, count):
    """A stream with ``count`` messages."""
    with Connection(broker.amqp_url, heartbeat_s=0) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        frames = channel.publish_frames("", name, b"x" * size, b"\x10\x00\x02") * AT_ONCE
        for _ in range(count // AT_ONCE - 1):
            connection.send(frames)
        channel.confirm_select()
        channel.publish_many([("", name, b"x" * size, b"\x10\x00\x02")] * AT_ONCE)
        channel.wait_for_confirms(600)


def cpu_s(pid):
    """What a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alone(url, name, broker_pid):
    """(rows per CPU second of the reader, CPU microseconds per row of the broker)."""
    options = Options({"subscribe": name, "url": url})
    planner = Planner(options, HttpTransport(options, Credentials()))
    shape = planner.transport.describe(name)
    pieces = planner.pieces(
        name, shape, Position(shape.epoch, shape.first_offset), end_position(shape, shape.end_offset)
    )
    began, broker_began = time.process_time(), cpu_s(broker_pid)
    count = sum(batch.num_rows for batch in PieceReader(options, planner.transport, COLUMNS).batches(pieces))
    return count / (time.process_time() - began), (cpu_s(broker_pid) - broker_began) / count * 1e6


def beside(broker, url, name):
    """p99 in ms of 500 messages per second on a queue, while a process with nice 19 reads a
    stream as fast as it can.
    """
    reader = subprocess.Popen(["nice", "-n", "19", sys.executable, "-m", "load.spark", "--read", url, name])
    try:
        done = subprocess.run(
            [
                sys.executable, "-m", "gomq_py.perf", "throughput", "--uri", broker.amqp_url, "-V", "-l",
                "-r", "500", "-z", "8", "-j", "-u", "steady",
            ],
            capture_output=True, text=True, check=True)
    finally:
        reader.kill()
        reader.wait()
    return json.loads(done.stdout)["latency_p99_ms"]


def read_on(url, name):
    """Read a stream again and again until killed."""
    options = Options({"subscribe": name, "url": url})
    planner = Planner(options, HttpTransport(options, Credentials()))
    while True:
        shape = planner.transport.describe(name)
        pieces = planner.pieces(
            name, shape, Position(shape.epoch, shape.first_offset), end_position(shape, shape.end_offset)
        )
        for _ in PieceReader(options, planner.transport, COLUMNS).batches(pieces):
            pass


def publish_on(url, name):
    """Publish LIVE_RATE messages of 16 octets a second, confirmed, until killed."""
    with Connection(url, heartbeat_s=0) as connection:
        channel = connection.channel()
        channel.confirm_select()
        began, count = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * LIVE_RATE) - count
            channel.publish_many([("", name, b"x" * SIZES["16 B"], b"\x10\x00\x02")] * due)
            channel.wait_for_confirms(60)
            count += due
            time.sleep(PUBLISH_EVERY_S)


def live_waits(spark, broker, url, folder):
    """(p50, p99 in seconds, messages per second): what messages wait until a batch with them begins, in a
    streaming query that begins a batch as soon as the one before has ended.
    """
    from pyspark.sql import functions as f
    with Connection(broker.amqp_url, heartbeat_s=0) as connection:
        connection.channel().queue_declare("live", durable=True, arguments={"x-queue-type": "stream"})
    publisher = subprocess.Popen([sys.executable, "-m", "load.spark", "--publish", broker.amqp_url, "live"])
    waits: list = []
    begins: list = []

    def note(batch, _):
        began = time.time()
        came = f.round(f.unix_micros("timestamp") / 1e6, 2)
        counts = batch.groupBy(came.alias("came")).count().collect()
        begins.append(began)  # one that fails, on a busy machine, begins nothing
        if began >= begins[0] + LIVE_BEGINNING_S:
            waits.extend((began - row["came"], row["count"]) for row in counts)

    rows = spark.readStream.format("gomq").options(url=url, subscribe="live").load()
    writer = rows.writeStream.foreachBatch(note).option(
        "checkpointLocation", os.path.join(folder, "live")
    ).trigger(processingTime="0 seconds")
    query = writer.start()
    try:
        while not begins or time.time() < begins[0] + LIVE_BEGINNING_S + LIVE_S:
            # Spark waits 10 s for the Python process that plans a query.
            if not query.isActive:
                query = writer.start()
            time.sleep(LOOK_EVERY_S)
    finally:
        query.stop()
        publisher.kill()
        publisher.wait()
    waits.sort()
    return (
        _quantile(waits, 0.5), _quantile(waits, 0.99), sum(count for _, count in waits) / LIVE_S
    )


def _quantile(pairs, share):
    """Of sorted (value, weight)."""
    left = share * sum(weight for _, weight in pairs)
    for value, weight in pairs:
        left -= weight
        if left <= 0:
            return value
    return float("inf")


def through_spark(spark, url, name, count, folder):
    """Rows per second to noop, or to Parquet in a folder."""
    frame = spark.read.format("gomq").options(url=url, subscribe=name, minPartitions="2").load()
    began = time.monotonic()
    if folder is None:
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.write.mode("overwrite").parquet(folder)
    return count / (time.monotonic() - began)


def memory_of_a_job(count, folder):
    """(rows, peak of resident octets of all processes together,
    seconds) of bronze over ``count`` messages.
    """
    with ChildBroker(http_port=0, sync=True) as broker:
        fill(broker, "many", SIZES["16 B"], count)
        began = time.monotonic()
        job = subprocess.Popen(
            [
                sys.executable, "-m", "gomq_py.pipeline", "bronze", "--url",
                "http://{}:{}".format(*broker.addresses["http"]), "--streams", "many", "--out",
                os.path.join(folder, "many"), "--memory", "1g", "--master", "local[2]", "--once",
            ],
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        peak = 0
        try:
            while job.poll() is None:
                peak = max(peak, resident_octets(job.pid))
                time.sleep(LOOK_EVERY_S)
            lines = job.stdout.read().splitlines()
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
        return json.loads(lines[-1])["rows_total"], peak, time.monotonic() - began


def resident_octets(pid):
    """Of a process and all that it has started; pages that several share count for each in part (PSS)."""
    whole, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            with open(f"/proc/{one}/smaps_rollup", encoding="ascii") as file:
                whole += sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children", encoding="ascii") as file:
                    waiting += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return whole


def main():
    """Measure, print the table, exit 1 where less is reached than is wanted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 16 octets; an eighth of it of 1 KiB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--read", nargs=2, metavar=("URL", "STREAM"), help="only read, until killed")
    parser.add_argument("--publish", nargs=2, metavar=("URL", "STREAM"), help="only publish, until killed")
    parser.add_argument("--live", action="store_true", help="only how long messages wait for their batch")
    parser.add_argument(
        "--memory", type=int, metavar="MESSAGES", help="only what a bronze job over so many takes"
    )
    given = parser.parse_args()
    if given.read:
        return read_on(*given.read)
    if given.publish:
        return publish_on(*given.publish)
    if given.memory:
        with tempfile.TemporaryDirectory(prefix="gomq-bench-spark-") as folder:
            count, peak, seconds = memory_of_a_job(given.memory, folder)
        print(
            f"bronze over {count:,} messages: {peak / 1e9:.2f} GB resident at most, {MEMORY_LIMIT / 1e9:g} "
            f"are allowed; {seconds:.0f} s"
        )
        return peak > MEMORY_LIMIT or count != given.memory
    from gomq_py.pipeline.session import make_session
    if given.live:
        with tempfile.TemporaryDirectory(prefix="gomq-bench-spark-") as folder:
            with ChildBroker(http_port=0, sync=True) as broker:
                spark = make_session("bench-spark", given.master, "1g")
                return tell_live(
                    live_waits(spark, broker, "http://{}:{}".format(*broker.addresses["http"]), folder)
                )
    best: dict = {}
    served: dict = {}
    folder = tempfile.mkdtemp(prefix="gomq-bench-spark-")
    counts = {"16 B": given.rows, "1 KiB": given.rows // 8}
    try:
        with ChildBroker(http_port=0, sync=True) as broker:
            url = "http://{}:{}".format(*broker.addresses["http"])
            for label, size in SIZES.items():
                fill(broker, label.replace(" ", ""), size, counts[label])
            p99_ms = min(beside(broker, url, "16B") for _ in range(given.runs))
            spark = make_session("bench-spark", given.master, "1g")
            for _ in range(given.runs):
                for label in SIZES:
                    name = label.replace(" ", "")
                    rate, cost = alone(url, name, broker._process.pid)
                    best["reader alone", label] = max(rate, best.get(("reader alone", label), 0))
                    served[label] = min(cost, served.get(label, 1e9))
                    for kind, place in (("noop", None), ("parquet", folder)):
                        best[kind, label] = max(
                            through_spark(spark, url, name, counts[label], place), best.get((kind, label), 0)
                        )
            live = live_waits(spark, broker, url, folder)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'':<14}{'messages':<10}{'rows/s':>12}{'wanted':>12}")
    for (kind, label), rate in best.items():
        print(
            f"{kind:<14}{label:<10}{rate:>12,.0f}{WANTED[kind, label]:>12,.0f}"
            + ("" if rate >= WANTED[kind, label] else "  less")
        )
    for label, cost in served.items():
        print(f"the broker's CPU for serving a row of {label}: {cost:.3f} us")
    print(
        "p99 of a steady queue beside a reader with nice 19: "
        f"{p99_ms:.2f} ms, at most {BESIDE_P99_MS:g} are wanted"
    )
    return tell_live(live) or p99_ms > BESIDE_P99_MS or any(rate < WANTED[key] for key, rate in best.items())


def tell_live(live):
    """Print it; True where it is longer than is wanted."""
    p50_s, p99_s, rate = live
    print(
        f"a message of {rate:,.0f} a second waits for its batch: p50 {p50_s:.2f} s, p99 {p99_s:.2f} s; "
        f"a p50 of at most {LIVE_WAIT_S:g} is wanted"
    )
    return p50_s > LIVE_WAIT_S


if __name__ == "__main__":
    sys.exit(main())
