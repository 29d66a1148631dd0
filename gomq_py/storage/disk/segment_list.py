"""Segment list: names the segments that held messages at the last orderly stop, so that a boot notices
missing files.

data_dir writes it when a run has ended in order without failures. The next boot reads it, and invalidates it
before changing any file. So a listed file that is missing was removed from outside or by the file system.
After a kill, or a loss of power, there is no list: the broker itself may have removed a missing file, or its
name was never flushed. The list is text, with a line for each folder with segments:

    <folder below queues/> <offset of the next message; 0 but for streams> <segment>:<messages left> ...

A stream whose consumers have saved positions has "positions:" and the checksum of the positions file at the
end of its line. A leaf: no I/O.
"""
from typing import NamedTuple


_POSITIONS = "positions"


class Listed(NamedTuple):
    """One folder in the segment list. ``counts``: {segment number: messages left}, without empty segments.
    For a stream also ``next_offset``, and ``positions``: stream_offsets.checksum of its consumers' saved
    positions (None: unknown).
    """

    counts: dict
    next_offset: int = 0
    positions: int | None = None


def encode(listed):
    """Encode {folder below queues/: Listed} as the text of the segment list, in octets."""
    return "".join(
        " ".join((folder, str(entry.next_offset), *map("%s:%d".__mod__, _pairs(entry)))) + "\n"
        for folder, entry in listed.items()
    ).encode("ascii")


def _pairs(entry):
    yield from entry.counts.items()
    if entry.positions is not None:
        yield _POSITIONS, entry.positions


def decode(content):
    """Decode the content of a segment list into {folder below queues/: Listed}. The caller has checked its
    digest. Raises ValueError for another version's format.
    """
    listed = {}
    for line in content.decode("ascii").splitlines():
        folder, next_offset, *pairs = line.split(" ")
        values = {name: int(value) for name, value in (pair.split(":") for pair in pairs)}
        positions = values.pop(_POSITIONS, None)
        counts = {int(number): count for number, count in values.items()}
        listed[folder] = Listed(counts, int(next_offset), positions)
    return listed
