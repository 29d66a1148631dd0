"""Commands that export and import definitions. A dry run shows what an import would change."""
import functools
import json
import os
import stat
import sys

import click

from gomq_py.ctl.api import API, APIError
from gomq_py.ctl.commands import command
from gomq_py.diagnosis.difference import Difference
from gomq_py.ctl.output import Progress, say

OUTPUT_FILE = click.Path(dir_okay=False, allow_dash=True)
# Lists whose entries an import is slow with; clients see how many there are.
COUNTED = ("exchanges", "queues")
_OF_EXCHANGES = "name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"


@command("export_definitions")
@click.argument("file", type=OUTPUT_FILE, default="-")
@click.option(
    "--only-vhost", is_flag=True, help="Those of the virtual host alone, which can be imported into another."
)
def export_definitions(session, file, only_vhost):
    """Write the broker's definitions to a file that only its owner may read: it has hashes of passwords, and
    passwords of shovels.
    """
    definitions = session.api.get("definitions", *((session.vhost,) if only_vhost else ()))
    write_definitions(definitions, file)


def write_definitions(definitions, path):
    """Write definitions as indented JSON to a file with mode 0600; ``-`` means standard output."""
    with click.open_file(path, "w") if path == "-" else open(
        path, "w", encoding="utf-8", opener=_open_private
    ) as file:
        json.dump(definitions, file, indent=2, ensure_ascii=False)
        file.write("\n")


def _open_private(path, flags):
    descriptor = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):  # /dev/null is for everybody
        os.fchmod(descriptor, 0o600)
    return descriptor


@command("import_definitions")
@click.argument("file", type=click.File("r"))
@click.option("--only-vhost", is_flag=True, help="Into the virtual host, whatever the file says.")
@click.option("--dry-run", is_flag=True, help="Print the difference and change nothing.")
def import_definitions(session, file, only_vhost, dry_run):
    """Import definitions of gomq-py, RabbitMQ or LavinMQ from FILE, or from standard input if FILE is -."""
    try:
        definitions = json.load(file)
    except ValueError as error:
        raise click.BadParameter(f"{file.name} is no JSON: {error}") from None
    bring_in(session, definitions, dry_run, (session.vhost,) if only_vhost else ())


def from_other(place):
    """Decorator: adds options for another broker (``place`` in help); passes its API as second argument."""

    def decorate(function):
        @click.option("--from", "source", required=True, metavar="URI",
                      help=f"Management API of {place}, as in http://rabbit:15672.")
        @click.option("--from-user", default="guest", show_default=True)
        @click.option("--from-password", envvar="GOMQ_CTL_FROM_PASSWORD", hidden=True)
        @click.option("--from-password-file", type=click.File("r"),
                      help="File whose first line is the password there; or set $GOMQ_CTL_FROM_PASSWORD.")
        @functools.wraps(function)
        def run(session, source, from_user, from_password, from_password_file, **options):
            if from_password_file is not None:
                from_password = from_password_file.readline().rstrip("\n")
            there = API(
                source, from_user, from_password or "guest", verify=session.api.verify,
                authorities=session.api.authorities, certificate=session.api.certificate)
            return function(session, there, **options)

        return run

    return decorate


@command("import")
@from_other("the other broker")
@click.option("--dry-run", is_flag=True, help="Print the difference and change nothing.")
def import_from(session, there, dry_run):
    """Import the definitions of a running RabbitMQ, LavinMQ or gomq-py."""
    bring_in(session, definitions_of(there), dry_run, ())


def definitions_of(other):
    """Return the definitions of the broker behind the API ``other``. Raises APIError."""
    definitions = other.get("definitions")
    if isinstance(definitions, dict):
        # RabbitMQ before 3.11 exports only the name of a virtual host; its list of them has the rest.
        vhosts = {vhost["name"]: vhost for vhost in other.get("vhosts")}
        for entry in definitions.get("vhosts") or ():
            more = vhosts.get(entry.get("name"), {})
            for key in ("description", "tags", "default_queue_type"):
                if key in more:
                    entry.setdefault(key, more[key])
        _add_internal(definitions.get("exchanges"), other)
    return definitions


def _add_internal(exchanges, other):
    """Add the internal exchanges to an export: RabbitMQ exports their bindings, but not themselves."""
    if not isinstance(exchanges, list):
        return
    known = {(entry.get("vhost"), entry.get("name")) for entry in exchanges}
    for entry in other.get("exchanges"):
        if entry.get("internal") and not entry["name"].startswith("amq.") and (
            (entry["vhost"], entry["name"]) not in known
        ):
            exchanges.append({key: entry[key] for key in _OF_EXCHANGES if key in entry})


def _look_at(session, definitions):
    """Return a function that returns (number of exchanges and queues imported so far, expected number)."""
    def count():
        totals = session.api.get("overview")["object_totals"]
        return sum(totals[kind] for kind in COUNTED)

    total, before = sum(len(definitions.get(kind) or ()) for kind in COUNTED), count()
    return lambda: (count() - before, total)


def bring_in(session, definitions, dry_run, where, leaves=True):
    """Import definitions and print a report. A dry run only prints what would change. Raises APIError.

    ``where``: (vhost,), or () for the whole broker. ``leaves``: end the command with exit code 1 if the
    broker refuses an entry.
    """
    if not isinstance(definitions, dict):
        raise APIError("definitions should be an object", 400)
    if dry_run:
        here = session.api.get("definitions", *where)
        types = {kind["name"] for kind in session.api.get("overview").get("exchange_types") or ()}
        rows = list(Difference(here, definitions, types, is_whole=not where).rows())
        session.out.rows("What an import would do", rows, ("action", "kind", "vhost", "name", "note"))
        return
    with Progress(session.out) as progress:
        report = progress.during(
            "importing",
            lambda: session.api.post("definitions", *where, body=definitions, query={"report": "true"}) or {},
            _look_at(session, definitions) if progress.is_shown else None)
    if session.out.form == "json":
        session.out.json(report)
    else:
        for kind, count in report.get("imported", {}).items():
            say(f"imported: {count} {kind}")
        for word in ("changed", "ignored", "refused"):
            for line in report.get(word, ()):
                say(f"{word}: {line}")
    if report.get("refused") and leaves:
        sys.exit(1)
