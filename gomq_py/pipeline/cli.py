"""The commands of ``gomq-py-pipeline``.

If a job fails, the command prints one line on standard error, and the exit code is 1.
"""
import contextlib
import functools
import json
import os
import sys

import click

from gomq_py import __version__
from gomq_py.pipeline.exposition import address_of
from gomq_py.pipeline.failures import told
from gomq_py.pipeline.java import NoJava
from gomq_py.spark.errors import GomqError, OptionError
from gomq_py.spark.options import Options


def _in_a_folder(context, parameter, path):
    """Callback of an option: return ``path``. Raises BadParameter if its folder cannot be written to."""
    folder = None if path is None else os.path.dirname(os.path.abspath(path))
    if folder is not None and not os.access(folder, os.W_OK):
        raise click.BadParameter(f"{folder} is no folder that can be written to")
    return path


def _an_address(context, parameter, given):
    try:
        if given is not None:
            address_of(given)
    except OptionError as error:
        raise click.BadParameter(str(error)) from None
    return given


def _pairs(context, parameter, given):
    pairs = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise click.UsageError(f"{one!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


_STREAMS = click.option("--streams", help="Names of streams, separated by commas.")
_PATTERN = click.option("--pattern", help="A regular expression: streams whose whole name matches.")
_DATA_DIR = click.option(
    "--data-dir", help="Read the files of this data folder or backup instead of asking the broker.")
_READING = (
    click.option("--url", help="Address of the broker's management API."),
    click.option("--vhost", help="Virtual host of the streams."),
    click.option(
        "--credentials-file", help="JSON with user and password, or token; else GOMQ_USER and GOMQ_PASSWORD."
    ),
    click.option("--ca-file", help="Who vouches for the broker's certificate (PEM)."),
    _STREAMS,
    _PATTERN,
    _DATA_DIR,
    click.option(
        "--option", "extra", multiple=True, callback=_pairs, metavar="NAME=VALUE",
        help="Any other option of the source.",
    ),
)
_NAMES = {
    "url": "url", "vhost": "vhost", "credentials_file": "credentialsFile", "ca_file": "caFile",
    "streams": "subscribe", "pattern": "subscribePattern", "data_dir": "dataDir",
}
_SPARK = (
    click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
    click.option(
        "--memory", default="1g", show_default=True,
        help="Memory of the driver, which in local mode is all of it.",
    ),
    click.option(
        "--conf", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="Any setting of Spark."),
)
_COUNTING = (
    click.option("--prometheus", type=click.Path(dir_okay=False), callback=_in_a_folder, metavar="FILE",
                 help="Keep counts in this file, in Prometheus' text format."),
    click.option("--prometheus-address", metavar="[HOST:]PORT", callback=_an_address,
                 help="Serve them at http://HOST:PORT/metrics, too; on loopback unless HOST is given."),
)
_RUNNING = (
    click.option("--checkpoint", help="Where the job keeps how far it is; beside the table unless given."),
    click.option("--once", is_flag=True, help="Stop when what is there now is done (the default)."),
    click.option("--every", metavar="DURATION", help="Go on, a batch every so often, such as '10 seconds'."),
    *_COUNTING,
)


def _with(*options):
    def decorate(command):
        for option in reversed([one for group in options for one in group]):
            command = option(command)
        return command
    return decorate


def reading_options(given):
    """Remove the options of the data source from a command's parameters. Returns them as {option: value}."""
    options = {name: value for key, name in _NAMES.items() if (value := given.pop(key, None)) is not None}
    if "dataDir" in options:
        options["transport"] = "files"
    return {**options, **given.pop("extra")}


@contextlib.contextmanager
def _session(command, given):
    """Context manager: yields a Spark session, and stops it at the end. ``given``: command parameters."""
    from gomq_py.pipeline.session import make_session  # here: --help does not load Spark
    spark = make_session(
        f"gomq-py-pipeline {command}", given["master"], given["memory"], given["conf"].items())
    try:
        yield spark
    finally:
        spark.stop()


def _fails_in_a_line(command):
    """Decorator: if the command raises, print the error as one line and exit with code 1."""
    @functools.wraps(command)
    def wrapped(**given):
        from gomq_py.pipeline.running import JobFailed
        try:
            return command(**given)
        except click.ClickException:
            raise
        except (GomqError, NoJava, JobFailed) as error:
            click.echo(f"gomq-py-pipeline: {error}", err=True)
        except Exception as error:
            click.echo(f"gomq-py-pipeline: {told(error)}", err=True)
        sys.exit(1)
    return wrapped


@click.group()
@click.version_option(__version__, prog_name="gomq-py-pipeline")
def pipeline():
    """Run Spark jobs over the broker's streams."""


@pipeline.command()
@_with(_READING)
@click.option("--folder", default=".", show_default=True, help="Where tables are to be written.")
@_fails_in_a_line
def doctor(folder, **given):
    """Check that everything a pipeline needs is present; say what to do if not."""
    from gomq_py.pipeline.doctor import BAD, examine
    reading = reading_options(given)
    if not {"subscribe", "subscribePattern", "assign"} & set(reading):
        reading["subscribePattern"] = ".*"
    findings = list(examine(reading, folder))
    for finding in findings:
        click.echo(f"{finding.level:<8}{finding.subject}: {finding.text}")
    sys.exit(any(finding.level == BAD for finding in findings))


@pipeline.command()
@_with(_READING, _SPARK, _RUNNING)
@click.option("--out", required=True, help="Folder of the table.")
@_fails_in_a_line
def bronze(out, **given):
    """Copy streams to a Parquet table, by date and stream; each offset once."""
    reading = reading_options(given)
    with _session("bronze", given) as spark:
        from gomq_py.pipeline.jobs import bronze as job
        _run(lambda: job.writers(spark, reading, out, given["checkpoint"]), given)


@pipeline.command()
@_with(_SPARK)
@click.option("--source", required=True, help="Folder of the table that bronze wrote.")
@click.option("--out", required=True, help="Folder of the table with fewer files; what is there is replaced.")
@_fails_in_a_line
def compact(source, out, **given):
    """Copy a table of bronze into a second table with fewer files; the first table stays unchanged."""
    with _session("compact", given) as spark:
        from gomq_py.pipeline.jobs import bronze as job
        click.echo(f"{job.compact(spark, source, out)} rows in {out}")


@pipeline.command()
@_with(_READING, _SPARK, _RUNNING)
@click.option("--schema", required=True, help="File (TOML) that says what payloads hold.")
@click.option("--out", required=True, help="Folder of the tables readings, windows and quarantine.")
@_fails_in_a_line
def telemetry(schema, out, **given):
    """Decode payloads of devices into tables of readings and windows; bad payloads go to a quarantine."""
    from gomq_py.pipeline.readings import read_schema
    reading, checked = reading_options(given), read_schema(schema)
    with _session("telemetry", given) as spark:
        from gomq_py.pipeline.jobs import telemetry as job
        _run(lambda: job.writers(spark, reading, checked, out, given["checkpoint"]), given)


@pipeline.command()
@_with(_READING, _SPARK, _RUNNING)
@click.option("--out", required=True, help="Folder of the table.")
@_fails_in_a_line
def metrics(out, **given):
    """Count messages and bytes by stream, exchange and minute."""
    reading = reading_options(given)
    with _session("metrics", given) as spark:
        from gomq_py.pipeline.jobs import metrics as job
        _run(lambda: job.writers(spark, reading, out, given["checkpoint"]), given)


@pipeline.command()
@_with(
    [one for one in _READING if one is not _PATTERN and one is not _STREAMS and one is not _DATA_DIR], _SPARK
)
@click.option("--out", required=True, help="Folder of the table.")
@click.option(
    "--every", metavar="DURATION",
    help="Go on, a sample every so often, such as '1 minute'; one sample unless given.",
)
@_fails_in_a_line
def queues(out, every, **given):
    """Write samples of the broker's queue statistics to a table: lengths, consumers, counters."""
    from gomq_py.pipeline.running import repeat, seconds_of
    pause_s = None if every is None else seconds_of(every)
    reading = reading_options(given)
    with _session("queues", given) as spark:
        from gomq_py.pipeline.jobs import queues as job

        def take():
            rows = job.sample(reading)
            job.append(spark, rows, out)
            click.echo(json.dumps({"job": "queues", "rows": len(rows)}))
        repeat(take, pause_s)


@pipeline.command("run")
@click.argument("file")
@click.option("--once", is_flag=True, help="Stop when what is there now is done (the default).")
@click.option("--every", metavar="DURATION", help="Go on, a batch every so often, such as '10 seconds'.")
@_with(_COUNTING)
@_fails_in_a_line
def run_file(file, **given):
    """Run the jobs of a pipeline file in one Spark session."""
    from gomq_py.pipeline.plan import read_plan
    plan = read_plan(file)
    with _session("run", {"master": plan.master, "memory": plan.memory, "conf": plan.conf}) as spark:
        from gomq_py.pipeline.jobs import all_writers
        _run(lambda: all_writers(spark, plan.jobs), given)


@pipeline.command("dead-letters")
@_with(_READING, _SPARK)
@click.option("--table", help="A table of bronze, instead of a stream.")
@click.option("--out", help="Write the summary to this folder as Parquet, too; what is there is replaced.")
@click.option("--samples", default=3, show_default=True, help="Messages to show of each queue and reason.")
@_fails_in_a_line
def dead_letters(table, out, samples, **given):
    """Count dead-lettered messages by queue, reason and hour, and show samples."""
    reading = reading_options(given)
    with _session("dead-letters", given) as spark:
        from gomq_py.pipeline.jobs import dead_letters as job
        messages = job.rows(spark, reading, table)
        summary = job.summary(messages)
        for row in summary.collect():
            click.echo(json.dumps(row.asDict(), default=str))
        for row in job.samples(messages, samples).collect() if samples else ():
            click.echo(json.dumps({"sample": row.asDict()}, default=str))
        if out:
            summary.write.mode("overwrite").parquet(out)


@pipeline.command()
@_with(_READING, _SPARK)
@click.option("--table", help="A table of bronze, instead of a stream.")
@click.option("--amqp-url", help="Address of the broker to publish to, without a login.")
@click.option("--to-vhost", help="Virtual host to publish to.")
@click.option("--to-queue", help="Queue to publish to.")
@click.option("--to-exchange", help="Exchange to publish to, with each message's own routing key.")
@click.option("--routing-key", help="Another routing key for all of them.")
@click.option("--where", help="Which messages, in SQL: \"queue = 'orders' and offset >= 17\".")
@click.option("--rate", type=click.IntRange(1), help="Messages per second.")
@click.option("--keep-deaths", is_flag=True, help="Leave headers about earlier deaths on them.")
@click.option("--dry-run", is_flag=True, help="Only count what would be published.")
@_fails_in_a_line
def replay(table, where, rate, keep_deaths, dry_run, **given):
    """Publish messages of a table or a stream once more."""
    names = {
        "amqp_url": "amqpUrl", "to_vhost": "vhost", "to_queue": "queue", "to_exchange": "exchange",
        "routing_key": "routingKey",
    }
    writing = {name: value for key, name in names.items() if (value := given.pop(key)) is not None}
    if given["credentials_file"]:
        writing["credentialsFile"] = given["credentials_file"]
    if not dry_run:
        Options(writing)  # checks them before Spark is started
    reading = {} if table else reading_options(given)
    with _session("replay", given) as spark:
        from gomq_py.pipeline.jobs import dead_letters, replay as job
        chosen = job.chosen(dead_letters.rows(spark, reading, table), where, keep_deaths)
        for row in job.counts(chosen).collect():
            click.echo(json.dumps({**row.asDict(), "dry_run": dry_run}))
        if not dry_run:
            job.publish(chosen, writing, rate)


def _run(make_writers, given):
    from gomq_py.pipeline.running import Reporter, run
    if given["once"] and given["every"]:
        raise click.UsageError("--once and --every exclude each other")
    reporter = Reporter(prometheus=given["prometheus"], address=given["prometheus_address"])
    run(make_writers(), given["every"], reporter)
