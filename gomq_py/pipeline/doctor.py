"""Checks the requirements of a pipeline: Java, pyspark, disk space, and a broker with read permission."""
import importlib.util
import os
import shutil
from importlib import metadata
from typing import NamedTuple

from gomq_py import build_info
from gomq_py.pipeline.java import NoJava, find_java
from gomq_py.spark.errors import GomqError
from gomq_py.spark.options import Options
from gomq_py.spark.planning import Planner
from gomq_py.spark.transports import make_transport

OK, WARNING, BAD = "ok", "warning", "BAD"
LITTLE_DISK = 2 << 30
KNOWN_PYSPARK = ((4, 2), (4, 4))


class Finding(NamedTuple):
    """One line of the report. ``level``: OK, WARNING or BAD."""

    level: str
    subject: str
    text: str


def examine(reading, folder="."):
    """Yield a Finding for each requirement of a pipeline.

    ``reading``: options of the data source. ``folder``: place for tables, whose disk space is checked.
    """
    try:
        java = find_java()
        yield Finding(OK, "java", f"Java {java.version} at {java.home}, from {java.origin}")
    except NoJava as error:
        yield Finding(BAD, "java", str(error))
    yield from _packages()
    yield _codec()
    yield from _broker(reading)
    yield _disk(folder)


def _packages():
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            yield Finding(BAD, name, "is not installed: pip install 'gomq-py[spark]'")
            continue
        version = metadata.version(name)
        number = tuple(int(part) for part in version.split(".")[:2])
        if name == "pyspark" and not KNOWN_PYSPARK[0] <= number < KNOWN_PYSPARK[1]:
            yield Finding(BAD, name, f"is {version}, and 4.2 or 4.3 is needed: pip install 'gomq-py[spark]'")
        else:
            yield Finding(OK, name, version)


def _codec():
    name = "gomq_py.storage.format.columns"
    if name in build_info.interpreted_modules():
        return Finding(
            WARNING, "codec",
            "records are parsed by interpreted Python, 30 times slower: install a compiled wheel",
        )
    return Finding(OK, "codec", "compiled")


def _broker(reading):
    try:
        options = Options(reading)
        transport = make_transport(options)
        try:
            shapes = Planner(options, transport).shapes()
        finally:
            transport.close()
    except GomqError as error:
        yield Finding(BAD, "broker", str(error))
        return
    if not shapes:
        yield Finding(WARNING, "streams", "no stream matches that this user may read")
    for name, shape in sorted(shapes.items()):
        yield Finding(
            OK, f"stream {name}",
            f"offsets {shape.first_offset} to {shape.end_offset}, {len(shape.segments)} segments",
        )


def _disk(folder):
    place = os.path.abspath(folder)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    free = shutil.disk_usage(place).free
    text = f"{free / (1 << 30):.1f} GiB free at {place}"
    if free < LITTLE_DISK:
        return Finding(BAD, "disk", f"{text}: Spark writes shuffles and tables there, make room")
    return (
        Finding(OK, "disk", text) if os.access(place, os.W_OK)
        else Finding(BAD, "disk", f"{place} cannot be written to")
    )
