"""Names of empty files that mark damage of a segment as reported, so that it is reported once."""
import re

_KNOWN = re.compile(r"known\.(\d{10})\.(\d+)\.(\d+)")


def known_name(number, start, end):
    """Name of the empty file that says that damage at [start, end) of segment ``number`` was reported."""
    return f"known.{number:010d}.{start}.{end}"


def known_ranges(names):
    """Parse file names made by known_name() into [(segment number, start, end)]; other names are skipped."""
    return [tuple(map(int, match.groups())) for match in map(_KNOWN.fullmatch, names) if match]


def is_known(ranges, number, start, end):
    """Whether one of ``ranges``, from known_ranges(), covers [start, end) of segment ``number``."""
    return any(number == known and first <= start and end <= behind for known, first, behind in ranges)
