"""A standalone cluster on loopback: a master and two workers, of which one is killed in the middle of a
batch. Nothing is lost or doubled.
"""
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gomq_py.pipeline.java import find_java
from tests.spark.sessions import JVM
from tests.support.waiting import TIMEOUT_S, wait_until

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


@pytest.mark.long
def test_a_worker_that_is_killed_in_the_middle_costs_nothing(broker, tmp_path):
    broker.stream(
        "clustered", [b"%d" % number for number in range(MESSAGES)],
        **{"x-stream-max-segment-size-bytes": 524288},
    )
    master = Daemon(
        tmp_path, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0",
        "--webui-port", "0",
    )
    workers = []
    driver = None
    try:
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        workers = [
            Daemon(
                tmp_path, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1",
                "--memory", "700m", "--webui-port", "0", url,
            )
            for _ in range(2)
        ]
        for worker in workers:
            worker.wait_for("Successfully registered with master")
        (tmp_path / "driver.py").write_text(DRIVER)
        driver = subprocess.Popen(
            [sys.executable, str(tmp_path / "driver.py"), url, broker.url, "clustered", str(tmp_path), JVM],
            stdout=subprocess.PIPE, stderr=(tmp_path / "driver.log").open("w"), text=True,
            start_new_session=True,
            env={
                **os.environ, "JAVA_HOME": find_java().home, "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1", "GOMQ_USER": "guest", "GOMQ_PASSWORD": "guest",
                "PYTHONPATH": os.getcwd(),
            })
        wait_until(lambda: len(list(tmp_path.glob("at-*"))) >= 2 or driver.poll() is not None, TIMEOUT_S * 20)
        workers[0].kill()
        (tmp_path / "go").touch()
        said, _ = driver.communicate(timeout=TIMEOUT_S * 20)
    finally:
        if driver is not None and driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
        for daemon in (*workers, master):
            daemon.kill()

    assert driver.returncode == 0, (tmp_path / "driver.log").read_text()[-3000:]
    assert json.loads(said.splitlines()[-1]) == {"count": MESSAGES, "distinct": MESSAGES}
