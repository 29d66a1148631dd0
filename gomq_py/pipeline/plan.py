"""Reads a pipeline file, which defines several jobs for one Spark session (``gomq-py-pipeline run``):

    [spark]                      # master, memory, and conf as a table; all may be left out
    memory = "1g"
    [source]                     # options of the source, for all jobs
    url = "http://127.0.0.1:15672"
    [[job]]
    kind = "bronze"              # bronze, telemetry, metrics
    name = "orders"              # default: the kind
    streams = "orders,payments"  # or pattern
    out = "tables/bronze"
    [[job]]
    kind = "telemetry"
    streams = "devices"
    schema = "devices.toml"
    out = "tables/devices"
    options = { maxOffsetsPerTrigger = 200000 }
"""
import os
from dataclasses import dataclass, field

from gomq_py.pipeline.readings import Schema, from_toml, read_schema
from gomq_py.spark.errors import OptionError
from gomq_py.spark.options import Options

KINDS = ("bronze", "telemetry", "metrics")
_JOB_KEYS = {"kind", "name", "streams", "pattern", "out", "checkpoint", "schema", "options"}


@dataclass
class Job:
    """One job of a pipeline file. ``reading``: options of the data source. ``out``: folder of the results."""

    kind: str
    name: str
    reading: dict
    out: str
    checkpoint: str | None = None
    schema: Schema | None = None


@dataclass
class Plan:
    """The parsed content of a pipeline file: jobs, and settings of their Spark session."""

    jobs: list
    master: str = "local[*]"
    memory: str = "1g"
    conf: dict = field(default_factory=dict)


def read_plan(path):
    """Read a Plan from a pipeline file. Paths in it are relative to its folder. Raises OptionError."""
    folder = os.path.dirname(os.path.abspath(path))
    return from_toml(path, lambda given: make_plan(given, folder))


def make_plan(given, folder):
    """Return the Plan for the parsed TOML of a file in ``folder``. Raises OptionError."""
    _known("the file", given, {"spark", "source", "job"})
    spark = given.get("spark", {})
    _known("[spark]", spark, {"master", "memory", "conf"})
    jobs = [_job(one, given.get("source", {}), folder) for one in given.get("job", ())]
    if not jobs:
        raise OptionError("there is no [[job]]")
    names = [job.name for job in jobs]
    for what, values in (("name", names), ("out", [job.out for job in jobs])):
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise OptionError(f"two jobs have the {what} {twice!r}")
    return Plan(jobs, spark.get("master", "local[*]"), spark.get("memory", "1g"), spark.get("conf", {}))


def _known(where, given, keys):
    strange = sorted(set(given) - keys)
    if strange:
        raise OptionError(
            f"{where} has the key {strange[0]}, which is unknown; there are {', '.join(sorted(keys))}")


def _job(given, source, folder):
    kind = given.get("kind")
    if kind not in KINDS:
        raise OptionError(f"a [[job]] has the kind {kind!r}; there are {', '.join(KINDS)}")
    name = given.get("name", kind)
    _known(f"job {name}", given, _JOB_KEYS)
    if not given.get("out"):
        raise OptionError(f"job {name} has no out, the folder it writes to")
    if (kind == "telemetry") != ("schema" in given):
        raise OptionError(f"job {name} {'needs a schema' if kind == 'telemetry' else 'takes no schema'}")
    reading = {**source, **given.get("options", {})}
    reading.update({
        option: given[key]
        for key, option in (("streams", "subscribe"), ("pattern", "subscribePattern")) if key in given
    })
    reading = {option: _words(value) for option, value in reading.items()}
    try:
        Options(reading)
    except OptionError as error:
        raise OptionError(f"job {name}: {error}") from None
    checkpoint = given.get("checkpoint")
    return Job(
        kind, name, reading, os.path.join(folder, given["out"]),
        None if checkpoint is None else os.path.join(folder, checkpoint),
        read_schema(os.path.join(folder, given["schema"])) if "schema" in given else None)


def _words(value):
    return str(value).lower() if isinstance(value, bool) else str(value)
