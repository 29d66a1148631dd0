"""A Spark session for tests, small and on loopback alone, and queries that run to their end."""
import os
import sys
import time

from gomq_py.pipeline.running import was_slow_to_start
from tests.support.waiting import TIMEOUT_S

# Seconds, as an option: a broker that starts again on a busy machine takes its time.
PATIENT = f"{8 * TIMEOUT_S:.0f}"
# A JVM that lives for seconds compiles less.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EVENTS = "events"
CONF = {
    "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.port": "0", "spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1",
    "spark.driver.memory": "700m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC", "spark.driver.extraJavaOptions": JVM,
    "spark.sql.adaptive.enabled": "false", "spark.sql.streaming.pollingDelay": "10ms",
}


def make_session(folder):
    """A session whose workers are this Python."""
    from pyspark.sql import SparkSession

    from gomq_py.pipeline.java import find_java
    from gomq_py.pipeline.session import start_fewer_processes
    os.environ["JAVA_HOME"] = find_java().home
    os.environ.update(
        PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[1]").appName("gomq-py tests")
    (folder / EVENTS).mkdir()
    places = {
        "spark.local.dir": folder, "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.eventLog.dir": folder / EVENTS,
    }
    for name, value in (*CONF.items(), *places.items()):
        builder = builder.config(name, str(value))
    session = builder.getOrCreate()
    start_fewer_processes(session)
    return session


def run_available(writer, checkpoint):
    """Run a streaming query for what is there now; its progress reports."""
    from pyspark.errors import StreamingQueryException
    deadline = time.monotonic() + TIMEOUT_S * 8
    while True:
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(int(TIMEOUT_S) * 8), "the query did not end"
        except StreamingQueryException as error:
            if not was_slow_to_start(error) or time.monotonic() >= deadline:
                raise
            continue
        finally:
            query.stop()
        return query.recentProgress
