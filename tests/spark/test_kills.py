"""Kills: Spark's whole process group dies at fixed batches, and the broker, while messages are published and
retention drops what was read; every offset is found once.

GOMQ_SPARK_KILLS says how often Spark dies, GOMQ_SPARK_MESSAGES over how many messages (make spark-kills).
"""
import json
import os
import signal
import subprocess
import sys
import threading
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from gomq_py.spark.http_transport import HttpTransport
from gomq_py.spark.options import Credentials, Options
from gomq_py.testing.brokers import ChildBroker
from tests.spark.conftest import PERSISTENT, Reached
from tests.spark.sessions import JVM, PATIENT
from tests.support.waiting import TIMEOUT_S, wait_until

KILLS = int(os.environ.get("GOMQ_SPARK_KILLS", "2"))
MESSAGES = int(os.environ.get("GOMQ_SPARK_MESSAGES", "200000"))
BATCH = 500
# Published while something is killed.
BURST = 2500
# What a record of this test takes in a segment.
RECORD_BYTES = 44
# For the longest of what is waited for.
PATIENT_S = TIMEOUT_S * max(20, MESSAGES / 50000)
# Every so many kills of Spark one of the broker.
KILLS_PER_BROKER = 5


class Publisher(threading.Thread):
    """Publishes until all that was to be published is confirmed,
    whatever becomes of the broker; ``confirmed`` counts.
    """

    def __init__(self, url, queue, count):
        super().__init__(daemon=True)
        self._url, self._queue, self._count = url, queue, count
        self.confirmed = 0
        self.allowed = 0  # how many may be published by now
        self.wake = threading.Event()

    def run(self):
        while self.confirmed < self._count:
            try:
                with Connection(self._url, heartbeat_s=0, timeout_s=TIMEOUT_S) as connection:
                    channel = connection.channel()
                    channel.confirm_select()
                    while self.confirmed < self._count:
                        self._publish(channel)
            except (ClientError, OSError):
                self.wake.wait(0.05)

    def _publish(self, channel):
        if self.confirmed >= self.allowed:
            self.wake.wait(0.05)
            return
        channel.publish_many(
            ("", self._queue, b"%d" % number, PERSISTENT)
            for number in range(self.confirmed, self.confirmed + BATCH)
        )
        assert channel.wait_for_confirms()
        self.confirmed += BATCH


class Job:
    """One run of ``gomq-py-pipeline bronze``, in a process group of its own."""

    def __init__(self, arguments):
        self.lines = []
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gomq_py.pipeline", "bronze", *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment)
        self._errors = []
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                         for pair in ((self.process.stdout, self.lines), (self.process.stderr, self._errors))]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe, lines):
        for line in pipe:
            lines.append(line)

    def batches(self):
        """How many batches it has told."""
        return sum('"batch"' in line for line in self.lines)

    def wait_for_batches(self, count):
        wait_until(
            lambda: self.batches() >= count or self.process.poll() is not None, PATIENT_S, f"{count} batches"
        )
        assert self.process.poll() is None, "".join(self._errors)

    def kill(self):
        """kill -9, of Spark's JVM and its Python workers as well."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Wait for its end; what it said last."""
        code = self.process.wait(PATIENT_S)
        for reader in self._readers:
            reader.join(TIMEOUT_S)
        assert code == 0, "".join(self._errors)
        return json.loads(self.lines[-1])


@pytest.fixture
def start_job():
    """A function that starts a Job; what a failed test leaves running is killed."""
    jobs = []

    def start(arguments):
        jobs.append(Job(arguments))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.process.poll() is None:
            job.kill()


@pytest.mark.long
def test_every_offset_is_found_once_whatever_is_killed(start_job, tmp_path):
    share = MESSAGES // (KILLS + 1)
    # Each run reads three quarters of a share at least, so that this is never what is not read yet.
    kept = int((1.75 + KILLS / 4) * share) * RECORD_BYTES
    with ChildBroker(tmp_path / "data", http_port=0, sync=True) as broker:
        reached = Reached(broker)
        reached.stream("log", **{"x-stream-max-segment-size-bytes": 1 << 18, "x-max-length-bytes": kept})
        publisher = Publisher(broker.amqp_url, "log", MESSAGES)
        publisher.start()
        arguments = [
            "--url", reached.url, "--streams", "log", "--out", str(tmp_path / "bronze"), "--master",
            "local[1]", "--memory", "700m", "--conf", f"spark.driver.extraJavaOptions={JVM}", "--option",
            f"maxOffsetsPerTrigger={share // 3}", "--option", f"retrySeconds={PATIENT}",
        ]
        for kill in range(KILLS):
            publisher.allowed = (kill + 1) * share - 2 * BURST
            job = start_job([*arguments, "--every", "0 seconds"])
            job.wait_for_batches(2)
            if kill % KILLS_PER_BROKER == 0:
                publisher.allowed += BURST
                broker.kill()
                broker.start()
            if kill % 2 == 0:
                job.wait_for_batches(3)
            publisher.allowed = (kill + 1) * share
            job.kill()
        publisher.allowed = MESSAGES
        wait_until(lambda: publisher.confirmed >= MESSAGES, PATIENT_S, "all messages confirmed")

        done = start_job([*arguments, "--once"]).end()

        shape = shape_of(reached)
    rows = table(tmp_path / "bronze")
    end = shape.end_offset
    # what was published again because its confirm got lost is there twice, under two offsets
    assert end >= MESSAGES
    assert (rows.num_rows, pc.count_distinct(rows["offset"]).as_py()) == (end, end)
    assert pc.min_max(rows["offset"]).as_py() == {"min": 0, "max": end - 1}
    assert pc.count_distinct(rows["body"]).as_py() == MESSAGES
    assert done["lag"] == 0
    assert shape.first_offset > 0  # retention ran


def shape_of(reached):
    """What the stream holds now."""
    return HttpTransport(Options({"subscribe": "log", "url": reached.url}), Credentials()).describe("log")


def table(folder):
    """Offsets and bodies of the files that Spark's file sink has committed."""
    paths = set()
    for log in (folder / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            paths |= {json.loads(line)["path"] for line in log.read_text().splitlines()[1:]}
    return pa.concat_tables(
        pq.ParquetFile(unquote(urlsplit(path).path)).read(columns=["offset", "body"])
        for path in sorted(paths))
