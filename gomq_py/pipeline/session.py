"""Creates the Spark session of jobs.

By default the session is small, listens on loopback only, and uses the running Python for its workers.
"""
import os
import sys

from gomq_py.pipeline.java import find_java

DEFAULTS = {
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC",
    # Parts are files: the default of 200 means hundreds of empty files per batch on one machine.
    "spark.sql.shuffle.partitions": "4",
}
# Without a native library, as in pyspark's wheel, Hadoop starts programs to read links and set modes. With
# Spark's default manager a batch's checkpoint starts 20 of them, with this one 4. It gives up renames that
# fail if the target exists; Hadoop's local files do not have that either.
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FEWER_PROCESSES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def make_session(name, master="local[*]", memory="1g", conf=()):
    """Return a SparkSession. ``conf``: (key, value) pairs that override the defaults. Raises NoJava."""
    os.environ["JAVA_HOME"] = find_java().home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # here: commands without Spark are quick
    builder = SparkSession.builder.master(master).appName(name).config("spark.driver.memory", memory)
    for key, value in {**DEFAULTS, **(LOCAL if is_local else {}), **dict(conf)}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if is_local:
        start_fewer_processes(session)
    from gomq_py.spark import register
    register(session)
    return session


def start_fewer_processes(session):
    """Let Spark manage checkpoint files with a class that starts fewer programs (FEWER_PROCESSES).

    Does nothing if Spark lacks the class, or if a setting names a class.
    """
    has = session._jvm.org.apache.spark.util.Utils.classIsLoadable(FEWER_PROCESSES)
    if has and session.conf.get(CHECKPOINT_MANAGER, None) is None:
        session.conf.set(CHECKPOINT_MANAGER, FEWER_PROCESSES)
