"""Kills: Spark's whole process group dies at fixed batches and the broker once, while messages are published; every offset is found once.

GOMQ_SPARK_KILLS says how often Spark dies, GOMQ_SPARK_MESSAGES over how many messages (make spark-kills).
"""
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from gomq_py.testing.brokers import ChildBroker
from tests.spark.conftest import PERSISTENT, Reached
from tests.support.waiting import TIMEOUT_S, wait_until

KILLS = int(os.environ.get("GOMQ_SPARK_KILLS", "2"))
MESSAGES = int(os.environ.get("GOMQ_SPARK_MESSAGES", "200000"))
BATCH = 500


class Publisher(threading.Thread):
    """Publishes until all that was to be published is confirmed, whatever becomes of the broker; ``confirmed`` counts."""

    def __init__(self, url, queue, count):
        super().__init__(daemon=True)
        self._url, self._queue, self._count = url, queue, count
        self.confirmed = 0
        self.allowed = 0  # how many may be published by now
        self.wake = threading.Event()

    def run(self):
        while self.confirmed < self._count:
            try:
                with Connection(self._url, heartbeat_s=0, timeout_s=10) as connection:
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
        channel.publish_many(("", self._queue, b"%d" % number, PERSISTENT) for number in range(self.confirmed, self.confirmed + BATCH))
        assert channel.wait_for_confirms()
        self.confirmed += BATCH


class Job:
    """One run of ``gomq-py-pipeline bronze``, in a process group of its own."""

    def __init__(self, arguments):
        self.lines = []
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gomq_py.pipeline", "bronze", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env=environment)
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
        wait_until(lambda: self.batches() >= count or self.process.poll() is not None, TIMEOUT_S * 6, f"{count} batches")
        assert self.process.poll() is None, "".join(self._errors)

    def kill(self):
        """kill -9, of Spark's JVM and its Python workers as well."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Wait for its end; what it said last."""
        try:
            code = self.process.wait(TIMEOUT_S * 10)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        for reader in self._readers:
            reader.join(TIMEOUT_S)
        assert code == 0, "".join(self._errors)
        return json.loads(self.lines[-1])


@pytest.mark.long
def test_every_offset_is_found_once_whatever_is_killed(spark, tmp_path):
    share = MESSAGES // (KILLS + 1)
    with ChildBroker(tmp_path / "data", http_port=0, sync=True) as broker:
        reached = Reached(broker)
        reached.stream("log", **{"x-stream-max-segment-size-bytes": 1 << 20})
        publisher = Publisher(broker.amqp_url, "log", MESSAGES)
        publisher.start()
        arguments = ["--url", reached.url, "--streams", "log", "--out", str(tmp_path / "bronze"), "--master", "local[1]", "--memory", "700m",
                     "--option", f"maxOffsetsPerTrigger={max(1000, share // 4)}"]
        for kill in range(KILLS):
            publisher.allowed += share
            job = Job([*arguments, "--every", "0 seconds"])
            job.wait_for_batches(2 + kill % 2)
            if kill == 0:
                broker.kill()
                broker.start()
                job.wait_for_batches(3)
            job.kill()
        publisher.allowed = MESSAGES
        wait_until(lambda: publisher.confirmed >= MESSAGES, TIMEOUT_S * 4)

        done = Job([*arguments, "--once"]).end()

        end = reached_end(reached)
    rows = spark.read.parquet(str(tmp_path / "bronze"))
    count, distinct, first, last = rows.selectExpr("count(*)", "count(distinct offset)", "min(offset)", "max(offset)").first()
    assert end >= MESSAGES  # what was published again because its confirm got lost is there twice, under two offsets
    assert (count, distinct, first, last) == (end, end, 0, end - 1)
    assert rows.selectExpr("count(distinct body)").first()[0] == MESSAGES
    assert done["lag"] == 0


def reached_end(reached):
    """Where the stream ends."""
    from gomq_py.spark.http_transport import HttpTransport
    from gomq_py.spark.options import Credentials, Options
    return HttpTransport(Options({"subscribe": "log", "url": reached.url}), Credentials()).describe("log").end_offset
