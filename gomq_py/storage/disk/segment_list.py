"""Segment list: which segments held messages when the last run stopped in order, so that a boot notices files
that are gone.

Written by data_dir when a run has ended in order and nothing of it had failed. The next boot reads it, and
makes it void before anything changes. So if a file is gone, somebody or the file system has taken it away.
After a kill, or a loss of power, there is no list: a file that is not there may have been emptied, or never
flushed. Text, a line for each folder that had segments:

    <folder below queues/> <offset of the next message; 0 but for streams> <segment>:<messages left> ...

and at its end, of a stream whose consumers have positions, "positions:" and the checksum of that file.
A leaf: no I/O.
"""
from typing import NamedTuple


_POSITIONS = "positions"


class Listed(NamedTuple):
    """What a folder held: ``{segment number: messages left}`` without the segments that held none, and of a
    stream its next offset and stream_offsets.checksum of its consumers' positions (None: not known).
    """

    counts: dict
    next_offset: int = 0
    positions: int | None = None


def encode(listed):
    """{folder: Listed} as octets."""
    return "".join(
        " ".join((folder, str(entry.next_offset), *map("%s:%d".__mod__, _pairs(entry)))) + "\n"
        for folder, entry in listed.items()
    ).encode("ascii")


def _pairs(entry):
    yield from entry.counts.items()
    if entry.positions is not None:
        yield _POSITIONS, entry.positions


def decode(content):
    """{folder: Listed} of the octets that ``encode`` made; the caller has checked that they are whole."""
    listed = {}
    for line in content.decode("ascii").splitlines():
        folder, next_offset, *pairs = line.split(" ")
        values = {name: int(value) for name, value in (pair.split(":") for pair in pairs)}
        positions = values.pop(_POSITIONS, None)
        counts = {int(number): count for number, count in values.items()}
        listed[folder] = Listed(counts, int(next_offset), positions)
    return listed
