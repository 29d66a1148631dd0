"""A standalone cluster on loopback, a master and two workers: a program that brings gomq-py along
(spark-submit --py-files), and then a worker that is killed in the middle of a batch.
"""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from gomq_py.pipeline.java import find_java
from tests.spark.sessions import JVM
from tests.support.waiting import TIMEOUT_S, wait_until
from tests.unit.source_tree import ROOT

MESSAGES = 60000
# Reads slowly enough to be killed in the middle: each task says that it is there,
# and waits for the test's word.
DRIVER = """
import json, os, sys, time
from pyspark.sql import SparkSession, functions as f

spark = SparkSession.builder.master(sys.argv[1]).appName("cluster").config("spark.ui.enabled", "false").config(
    "spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").config("spark.executor.memory", "512m").config(
    "spark.cores.max", "2").config("spark.driver.extraJavaOptions", sys.argv[5]).config("spark.executor.extraJavaOptions", sys.argv[5]).config(
    "spark.sql.adaptive.enabled", "false").config("spark.executor.cores", "1").config("spark.driver.memory", "512m").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
folder = sys.argv[4]

def hold(offset):
    if offset % 10000 == 0:
        open(os.path.join(folder, f"at-{offset}-{os.getpid()}"), "w").close()
        while not os.path.exists(os.path.join(folder, "go")):
            time.sleep(0.05)
    return offset

rows = spark.read.format("gomq").options(url=sys.argv[2], subscribe=sys.argv[3], partitionBytes="600k").load()
rows.select(f.udf(hold, "bigint")("offset").alias("offset")).write.mode("overwrite").parquet(os.path.join(folder, "out"))
count, distinct = spark.read.parquet(os.path.join(folder, "out")).selectExpr("count(*)", "count(distinct offset)").first()
print(json.dumps({"count": count, "distinct": distinct}), flush=True)
spark.stop()
"""

# Says where its workers have gomq_py from.
SUBMITTED = """
import json, os, sys
from pyspark.sql import SparkSession, functions as f

def origin(offset):
    import gomq_py.spark.source
    return gomq_py.spark.source.__file__

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
given = {"url": sys.argv[1], "subscribe": sys.argv[2], "startingOffsets": "earliest"}
rows = spark.read.format("gomq").options(**given).load()
origins = [row[0] for row in rows.select(f.udf(origin, "string")("offset")).distinct().collect()]
out = os.path.join(sys.argv[3], "out")
table = spark.readStream.format("gomq").options(**given).load().writeStream.format("parquet").option(
    "path", out).option("checkpointLocation", out + ".checkpoint")
while True:
    query = table.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        break
    except Exception as error:
        if "Python worker failed to connect back" not in str(error):
            raise
said = {"origins": origins, "batch": rows.count(), "stream": spark.read.parquet(out).count()}
print(json.dumps(said), flush=True)
spark.stop()
"""
# A Python with what gomq-py needs and without itself: no path files are read, which an editable install is.
BARE_PYTHON = """#!/bin/sh
PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@"
"""


class Daemon:
    """A process of the cluster, in a group of its own; its lines are kept."""

    def __init__(self, folder, *arguments):
        import pyspark
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        environment = {
            **os.environ, "JAVA_HOME": find_java().home, "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_WORKER_DIR": str(folder / "work"), "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JVM}
        self.lines = []
        self.process = subprocess.Popen(
            [str(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment, start_new_session=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_for(self, pattern):
        """The match of a line."""
        def found():
            return next((match for line in list(self.lines) if (match := re.search(pattern, line))), None)
        return wait_until(found, TIMEOUT_S * 10, f"{pattern} in\n{''.join(self.lines[-20:])}")

    def kill(self):
        """With whatever it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Cluster:
    """A master and two workers of a core each."""

    def __init__(self, folder):
        self._daemons = []
        try:
            master = self._start(
                folder, "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
            self.workers = [
                self._start(
                    folder, "worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "700m",
                    "--webui-port", "0", self.url)
                for _ in range(2)
            ]
            for worker in self.workers:
                worker.wait_for("Successfully registered with master")
        except BaseException:
            self.stop()
            raise

    def _start(self, folder, name, *arguments):
        self._daemons.append(Daemon(folder, f"org.apache.spark.deploy.{name}", *arguments))
        return self._daemons[-1]

    def stop(self):
        """At once."""
        for daemon in reversed(self._daemons):
            daemon.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The cluster of this module. Its last test kills a worker."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


def end_of(driver, log):
    """What a driver said last, once it has ended well."""
    said, _ = driver.communicate(timeout=TIMEOUT_S * 20)
    assert driver.returncode == 0, log.read_text()[-3000:]
    return json.loads(said.splitlines()[-1])


@pytest.mark.long
def test_executors_that_lack_gomq_py_get_it_with_the_program(broker, cluster, tmp_path):
    """In the zip that docs/spark.md says. A streaming query needs it on the driver's path as well."""
    import pyspark
    broker.stream("submitted", [b"%d" % number for number in range(500)])
    with zipfile.ZipFile(tmp_path / "gomq.zip", "w") as archive:
        for folder in ("gomq_py", "pyspark_gomq"):
            for path in sorted((ROOT / folder).rglob("*.py")):
                archive.write(path, path.relative_to(ROOT))
    bare = tmp_path / "bare-python"
    packages = Path(pyspark.__file__).parents[1]
    bare.write_text(BARE_PYTHON.format(packages=packages, python=sys.executable))
    bare.chmod(0o755)
    (tmp_path / "program.py").write_text(SUBMITTED)
    conf = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m", "spark.cores.max": "1",
        "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": JVM,
        "spark.executor.extraJavaOptions": JVM, "spark.sql.shuffle.partitions": "1"}
    log = tmp_path / "driver.log"
    driver = subprocess.Popen(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url,
            "--py-files", "gomq.zip", *(word for pair in conf.items() for word in ("--conf", "=".join(pair))),
            "program.py", broker.url, "submitted", str(tmp_path),
        ],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=log.open("w"), text=True, start_new_session=True,
        env={
            **os.environ, "JAVA_HOME": find_java().home, "PYSPARK_PYTHON": str(bare),
            "SPARK_LOCAL_IP": "127.0.0.1", "GOMQ_USER": "guest", "GOMQ_PASSWORD": "guest",
            "PYTHONPATH": str(tmp_path / "gomq.zip"),
        })
    try:
        said = end_of(driver, log)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)

    assert (said["batch"], said["stream"]) == (500, 500)
    assert said["origins"] and all("gomq.zip/gomq_py/" in origin for origin in said["origins"])


@pytest.mark.long
def test_a_worker_that_is_killed_in_the_middle_costs_nothing(broker, cluster, tmp_path):
    broker.stream(
        "clustered", [b"%d" % number for number in range(MESSAGES)],
        **{"x-stream-max-segment-size-bytes": 524288},
    )
    (tmp_path / "driver.py").write_text(DRIVER)
    log = tmp_path / "driver.log"
    driver = subprocess.Popen(
        [
            sys.executable, str(tmp_path / "driver.py"), cluster.url, broker.url, "clustered", str(tmp_path),
            JVM,
        ],
        stdout=subprocess.PIPE, stderr=log.open("w"), text=True, start_new_session=True,
        env={
            **os.environ, "JAVA_HOME": find_java().home, "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1", "GOMQ_USER": "guest", "GOMQ_PASSWORD": "guest",
            "PYTHONPATH": os.getcwd(),
        })
    try:
        wait_until(lambda: len(list(tmp_path.glob("at-*"))) >= 2 or driver.poll() is not None, TIMEOUT_S * 20)
        cluster.workers[0].kill()
        (tmp_path / "go").touch()
        said = end_of(driver, log)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)

    assert said == {"count": MESSAGES, "distinct": MESSAGES}
