"""Output: prints lists as aligned tables, tab separated lines or JSON to standard output."""
import json
import sys

import click


class Output:
    """Prints results. ``form``: table, text (tab separated) or json; ``quiet``: the data only."""

    def __init__(self, form="table", quiet=False):
        self.form = form
        self.quiet = quiet

    def rows(self, title, rows, columns):
        """Print a list of objects, only the ``columns``; a column ``a.b`` is the field b of the field a.
        Reports columns that no object has.
        """
        missing = [column for column in columns if rows and not any(has(row, column) for row in rows)]
        if missing and not self.quiet:
            click.echo(f"gomq-py-ctl: nothing here has a field {', '.join(missing)}", err=True)
        if self.form == "json":
            self.json([{column: at(row, column) for column in columns} for row in rows])
            return
        if not self.quiet:
            click.echo(f"{title} ...", err=True)
        table = [list(columns), *([shown(at(row, column)) for column in columns] for row in rows)]
        widths = [max(map(len, cells)) for cells in zip(*table)]
        for line in table[1:] if self.quiet else table:
            click.echo(
                "\t".join(line) if self.form == "text"
                else "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())

    def fields(self, values):
        """Print one object as ``key: value`` lines, or as JSON."""
        if self.form == "json":
            self.json(values)
            return
        for key, value in values.items():
            click.echo(f"{key}: {shown(value)}")

    def value(self, key, value):
        """Print a key and its value; if quiet, only the value."""
        if self.quiet and self.form != "json":
            click.echo(shown(value))
        else:
            self.fields({key: value})

    def said(self, text):
        """Print a sentence about a result; do nothing if ``form`` is json or ``quiet`` is set."""
        if not self.quiet and self.form != "json":
            click.echo(text, err=True)

    @staticmethod
    def json(value):
        """Print a value as JSON; on a terminal, indent it."""
        indent = None if not sys.stdout.isatty() else 2
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        try:
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:  # a name that the terminal's encoding, or any, cannot hold
            text = json.dumps(value, indent=indent)
        sys.stdout.write(text + "\n")


def has(row, column):
    """Whether ``row``, nested dicts, has the field ``column``, such as ``a.b``."""
    for part in column.split("."):
        if not isinstance(row, dict) or part not in row:
            return False
        row = row[part]
    return True


def at(row, column):
    """The value of the field ``column``, such as ``a.b``, in the nested dicts ``row``, or None."""
    for part in column.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def shown(value):
    """A value as text of one cell, with escapes for control characters, which could trick a terminal."""
    if value is None:
        text = ""
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, (dict, list)):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    else:
        text = str(value)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
