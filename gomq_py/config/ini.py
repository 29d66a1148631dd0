"""INI: parses files in LavinMQ's format: sections, ``key = value`` lines, comment lines that begin with ``;``
or ``#``.

The standard library's parser forgets line numbers, which errors show (``gomq.ini:12``), and joins indented
lines. Reads text; the options are defined in config.settings.
"""
from dataclasses import dataclass


SHOWN_CHARACTERS = 80


class IniError(ValueError):
    """A line is malformed. The text begins with FILE:LINE."""


@dataclass(frozen=True)
class Entry:
    """One ``key = value`` line; ``place`` is FILE:LINE."""

    section: str
    key: str
    value: str
    place: str


def parse(text: str, file_name: str) -> list[Entry]:
    """List the entries of a file's text in order, repeated keys included. A key before the first section
    belongs to ``main``, as in LavinMQ.

    Raises IniError for a line that is not a section, entry, comment or blank line, and for a section header
    without its closing bracket.
    """
    section, entries = "main", []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        place = f"{file_name}:{number}"
        if not line or line[0] in ";#":
            continue
        if line[0] == "[":
            if not line.endswith("]") or not line[1:-1].strip():
                raise IniError(f"{place}: {_shown(line)} is not a [section]")
            section = line[1:-1].strip()
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise IniError(f"{place}: {_shown(line)} is not a key = value line")
        entries.append(Entry(section, key.strip(), value.strip(), place))
    return entries


def _shown(line: str) -> str:
    """The first word of a line, for error texts. The rest may be a password after a missing equals sign."""
    word, *more = line.split(None, 1)
    return repr(word[:SHOWN_CHARACTERS] + ("..." if more or len(word) > SHOWN_CHARACTERS else ""))


def sections(text: str) -> list[tuple[str, int]]:
    """List (name, line number) of every section header in the text, also of sections without entries."""
    found = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            found.append((line[1:-1].strip(), number))
    return found
