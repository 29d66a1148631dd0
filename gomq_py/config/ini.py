"""Parses INI files in LavinMQ's format: [sections], ``key = value`` lines, and comments after ``;`` or ``#``.

A comment is a line of its own. The standard library's parser is not used: it joins indented lines, and loses
the line numbers that errors show (``gomq.ini:12``).
"""
from dataclasses import dataclass


SHOWN_CHARACTERS = 80


class IniError(ValueError):
    """A line is malformed. The text begins with FILE:LINE."""


@dataclass(frozen=True)
class Entry:
    """One ``key = value`` line. ``place`` is FILE:LINE."""

    section: str
    key: str
    value: str
    place: str


def parse(text: str, file_name: str) -> list[Entry]:
    """Return the entries of a file's text in order, repeated keys included. A key before the first section
    belongs to the section ``main``, as in LavinMQ. Raises IniError for a line that is no section, entry,
    comment or blank.
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
    """Return the first word of a line, for error texts: the rest may be a password after a missing "="."""
    word, *more = line.split(None, 1)
    return repr(word[:SHOWN_CHARACTERS] + ("..." if more or len(word) > SHOWN_CHARACTERS else ""))


def sections(text: str) -> list[tuple[str, int]]:
    """Return [(name, line number)] of all section headers in the text, also of sections without entries."""
    found = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            found.append((line[1:-1].strip(), number))
    return found
