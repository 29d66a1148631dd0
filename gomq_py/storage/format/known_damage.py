"""Known damage: names of empty files, each of which records that some damage of a segment was logged."""
import re

_KNOWN = re.compile(r"known\.(\d{10})\.(\d+)\.(\d+)")


def known_name(number, start, end):
    """Return the name of the empty file that marks damage at [start, end) of segment ``number`` as logged."""
    return f"known.{number:010d}.{start}.{end}"


def known_ranges(names):
    """Parse file names made by known_name() into [(segment number, start, end)]. Skips other names."""
    return [tuple(map(int, match.groups())) for match in map(_KNOWN.fullmatch, names) if match]


def is_known(ranges, number, start, end):
    """Return whether one of ``ranges``, from known_ranges(), covers [start, end) of segment ``number``."""
    return any(number == known and first <= start and end <= behind for known, first, behind in ranges)


def lost_among(first, behind, count, runs):
    """Return an upper bound of the unacked records that a damaged region had. ``first``, ``behind``: start
    and end of the region; ``count``: number of its records; ``runs``: ranges of acked positions, [start, end,
    start, end...].
    """
    if any(start <= first and behind <= end for start, end in zip(runs[::2], runs[1::2])):
        return 0
    return max(0, count - sum(first <= start < behind for start in runs[::2]))
