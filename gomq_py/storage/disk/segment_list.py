"""Segment list: names the segments that held messages at the last normal stop, so that a boot notices missing
files.

data_dir writes the list when a run has ended normally. The next boot reads the list, and invalidates it
before changing any file. So a listed file that is missing was removed from outside or by the file system.
After a kill or a power failure no list exists, because the broker itself may have removed a file, or never
flushed its name. The list is text, with a line for each folder with segments:

    <folder below queues/> <offset of the next message; 0 but for streams> <segment>:<messages left> ...

A stream whose consumers have saved positions has "positions:" and the checksum of the positions file at the
end of its line. Does no I/O.
"""
from typing import NamedTuple


_POSITIONS = "positions"


class Listed(NamedTuple):
    """One folder in the segment list.

        counts         {segment number: messages left}, without empty segments
        next_offset    offset of a stream's next message; 0 for other queues
        positions      stream_offsets.checksum of the positions of a stream's consumers; None: unknown
    """

    counts: dict
    next_offset: int = 0
    positions: int | None = None


def encode(listed):
    """Encode {folder below queues/: Listed} as the text of the segment list, in bytes."""
    return "".join(
        " ".join((folder, str(entry.next_offset), *map("%s:%d".__mod__, _pairs(entry)))) + "\n"
        for folder, entry in listed.items()
    ).encode("ascii")


def _pairs(entry):
    yield from entry.counts.items()
    if entry.positions is not None:
        yield _POSITIONS, entry.positions


def decode(content):
    """Decode a segment list into {folder below queues/: Listed}. The caller has checked the digest of
    ``content``. Raises ValueError for another version's format.
    """
    listed = {}
    for line in content.decode("ascii").splitlines():
        folder, next_offset, *pairs = line.split(" ")
        values = {name: int(value) for name, value in (pair.split(":") for pair in pairs)}
        positions = values.pop(_POSITIONS, None)
        counts = {int(number): count for number, count in values.items()}
        listed[folder] = Listed(counts, int(next_offset), positions)
    return listed
