"""Prints lists as aligned tables, tab separated lines or JSON to standard output."""
import contextlib
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait

import click

from gomq_py.ctl.api import APIError

# rabbitmqctl's name of a column -> the field of the API, where they differ.
FIELDS = {
    "source_name": "source", "destination_name": "destination", "destination_kind": "destination_type",
    "queue_name": "queue.name", "channel_pid": "channel_details.name",
}
_NOTHING = object()
# A command that is quicker shows no bar; between two looks how far a request is.
SHOWN_AFTER_S, LOOK_S = 1.0, 0.5


class Output:
    """Printer of results. ``form``: table, text (tab separated) or json. ``quiet``: print data only."""

    def __init__(self, form="table", quiet=False):
        self.form = form
        self.quiet = quiet

    def rows(self, title, rows, columns):
        """Print these columns of a list of dicts, or that the list is empty. The column ``a.b`` is the field
        b in the field a. RabbitMQ's names of columns are translated by FIELDS.
        """
        if self.form == "json":
            self.json([{column: at(row, column) for column in columns} for row in rows])
            return
        if not self.quiet:
            click.echo(f"{title} ... {'' if rows else 'none'}".rstrip(), err=True)
        lines = self.lines(rows, columns)
        for line in lines[1:] if self.quiet else lines:
            click.echo(line)

    def lines(self, rows, columns):
        """Return the lines of a table; the first line has the names of the ``columns``."""
        table = [list(columns), *([shown(at(row, column)) for column in columns] for row in rows)]
        if self.form == "text":
            return ["\t".join(line) for line in table]
        widths = [max(map(len, cells)) for cells in zip(*table)]
        return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in table]

    def fields(self, values):
        """Print a dict as ``key: value`` lines, or as JSON."""
        if self.form == "json":
            self.json(values)
            return
        for key, value in values.items():
            click.echo(f"{key}: {shown(value)}")

    def value(self, key, value):
        if self.quiet and self.form != "json":
            click.echo(shown(value))
        else:
            self.fields({key: value})

    def said(self, text):
        """Print a sentence to standard error, unless ``form`` is json or ``quiet`` is set."""
        if not self.quiet and self.form != "json":
            say(text, err=True)

    @staticmethod
    def json(value):
        indent = None if not sys.stdout.isatty() else 2
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        try:
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:  # a name that the terminal's encoding, or any, cannot hold
            text = json.dumps(value, indent=indent)
        sys.stdout.write(text + "\n")


class Progress:
    """A progress bar on standard error, for a command that takes longer than a second.

    A context manager; the block calls it to show progress. Shows nothing if standard error is no terminal or
    the Output ``out`` is quiet.
    """

    def __init__(self, out):
        self.is_shown = sys.stderr.isatty() and not out.quiet
        self._shown_from_s = time.monotonic() + SHOWN_AFTER_S
        self._bar, self._what = None, ""

    def __call__(self, what, done, total):
        """Show the progress of the step ``what``, such as "copying": ``done`` parts of ``total``."""
        if not self.is_shown or self._bar is None and time.monotonic() < self._shown_from_s:
            return
        if what != self._what:
            self._end()
            self._what = what
            self._bar = click.progressbar(length=max(total, 1), label=what, file=sys.stderr).__enter__()
        self._bar.length = max(total, 1)
        self._bar.update(max(0, min(done, self._bar.length) - self._bar.pos))

    def during(self, what, call, look):
        """Return ``call()``, a long request run in a thread. Meanwhile show ``look()``, (done, total)."""
        if not self.is_shown:
            return call()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(call)
            while not wait([answer], LOOK_S).done:
                with contextlib.suppress(APIError, LookupError):  # it decides nothing
                    self(what, *look())
            return answer.result()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._end()

    def _end(self):
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


def path_of(column):
    """Return the nested fields that a column stands for: a list of names, the outermost first."""
    return FIELDS.get(column, column).split(".")


def has(row, column):
    return at(row, column, _NOTHING) is not _NOTHING


def at(row, column, default=None):
    """Return the field ``column``, such as ``a.b``, of the nested dicts ``row``, or ``default``."""
    for part in path_of(column):
        if not isinstance(row, dict) or part not in row:
            return default
        row = row[part]
    return row


def say(text, err=False):
    """Print one line to standard output or, with ``err``, standard error. Control characters are escaped."""
    click.echo(shown(text), err=err)


def shown(value):
    """Return a value as text: control characters, which could trick a terminal, are escaped."""
    if value is None:
        text = ""
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, (dict, list)):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    else:
        text = str(value)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
