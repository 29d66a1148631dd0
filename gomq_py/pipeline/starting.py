"""Fixes the start of a new query: turns "latest" or a time into offsets once, before the query runs.

The offsets are stored in the checkpoint's folder. If Spark dies before it has committed the first batch, it
asks the source for the start again. "latest" would then be a later offset, and messages in between would
never be read.
"""
import json
import os

from gomq_py.spark.options import LATEST, Options
from gomq_py.spark.planning import Planner
from gomq_py.spark.transports import make_transport

NAME = "gomq-start.json"
# Options that say where a query starts.
STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")


def fixed_start(given, checkpoint):
    """Return the options ``given`` with offsets as startingOffsets, in place of any other start.

    The first run determines the offsets and stores them in the folder ``checkpoint``. Later runs use these.
    """
    path = os.path.join(checkpoint, NAME)
    kept = _read(path)
    if kept is None:
        options = Options(given)
        transport = make_transport(options)
        planner = Planner(options, transport)
        try:
            kept = {name: one.next for name, one in planner.starts(planner.shapes(), LATEST).items()}
        finally:
            transport.close()
        _write(path, kept)
    fixed = {name: value for name, value in given.items() if name not in STARTS}
    if kept:
        fixed["startingOffsets"] = json.dumps(kept)
    return fixed


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def _write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
