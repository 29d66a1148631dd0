"""Segment list: names the segments that held messages at the last orderly stop, so that a boot notices
missing files.

data_dir writes it when a run has ended in order without failures. The next boot reads it, and invalidates it
before anything changes. So a listed file that is missing was removed by somebody or by the file system. After
a kill, or a loss of power, there is no list: the broker itself may have removed a missing file, or its name
was never flushed. The list is text, with a line for each folder with segments:

    <folder below queues/> <offset of the next message; 0 but for streams> <segment>:<messages left> ...

and at its end, for a stream whose consumers have positions, "positions:" and the checksum of that file. A
leaf: no I/O.
"""
from typing import NamedTuple


_POSITIONS = "positions"


class Listed(NamedTuple):
    """One folder in the segment list. ``counts``: {segment number: messages left}, without empty segments. Of
    a stream: ``next_offset``, and ``positions``, the stream_offsets.checksum of its consumers' positions
    (None: unknown).
    """

    counts: dict
    next_offset: int = 0
    positions: int | None = None


def encode(listed):
    """Encode {folder: Listed} as octets."""
    return "".join(
        " ".join((folder, str(entry.next_offset), *map("%s:%d".__mod__, _pairs(entry)))) + "\n"
        for folder, entry in listed.items()
    ).encode("ascii")


def _pairs(entry):
    yield from entry.counts.items()
    if entry.positions is not None:
        yield _POSITIONS, entry.positions


def decode(content):
    """Decode {folder: Listed} from ``content``, the whole output of ``encode``; the caller has checked its
    digest.
    """
    listed = {}
    for line in content.decode("ascii").splitlines():
        folder, next_offset, *pairs = line.split(" ")
        values = {name: int(value) for name, value in (pair.split(":") for pair in pairs)}
        positions = values.pop(_POSITIONS, None)
        counts = {int(number): count for number, count in values.items()}
        listed[folder] = Listed(counts, int(next_offset), positions)
    return listed
