"""The Spark session that jobs run in: small by default, on loopback alone,
with this Python for its workers.
"""
import os
import sys

from gomq_py.pipeline.java import find_java

DEFAULTS = {
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC",
    # A job's parts are files; hundreds of empty ones for each batch are what the default of
    # 200 means on one machine.
    "spark.sql.shuffle.partitions": "4",
}
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def make_session(name, master="local[*]", memory="1g", conf=()):
    """A SparkSession. ``conf``: pairs that win over the defaults. Raises NoJava."""
    os.environ["JAVA_HOME"] = find_java().home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # here, because commands that need no Spark are quick without it
    builder = SparkSession.builder.master(master).appName(name).config("spark.driver.memory", memory)
    for key, value in {**DEFAULTS, **(LOCAL if is_local else {}), **dict(conf)}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    from gomq_py.spark import register
    register(session)
    return session
