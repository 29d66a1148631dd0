"""Damage of a segment: the names of empty files that mark it as reported, so that it is reported once,
and how many of its records are lost.
"""
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


def lost_among(first, behind, count, runs):
    """How many of the ``count`` records of the damaged region [``first``, ``behind``) are not in the acked
    ``runs``, at most.
    """
    if any(start <= first and behind <= end for start, end in zip(runs[::2], runs[1::2])):
        return 0
    return max(0, count - sum(first <= start < behind for start in runs[::2]))
