"""Segment list: which segments held messages when the last run stopped in order, so that a boot notices files
that are gone.

Written by data_dir when a run has ended in order and nothing of it had failed. The next boot reads it, and
makes it void before anything changes. So if a file is gone, somebody or the file system has taken it away.
After a kill, or a loss of power, there is no list: a file that is not there may have been emptied, or never
flushed. Text, a line for each folder that had segments:

    <folder below queues/> <offset of the next message; 0 but for streams> <segment>:<messages left> ...

A leaf: no I/O.
"""
from typing import NamedTuple


class Listed(NamedTuple):
    """What a folder held: ``{segment number: messages left}`` without the segments that held none, and the
    next offset of a stream.
    """

    counts: dict
    next_offset: int = 0


def encode(listed):
    """{folder: Listed} as octets."""
    return "".join(
        " ".join(
            (folder, str(entry.next_offset), *(f"{number}:{count}" for number, count in entry.counts.items()))
        ) + "\n"
        for folder, entry in listed.items()
    ).encode("ascii")


def decode(content):
    """{folder: Listed} of the octets that ``encode`` made; the caller has checked that they are whole."""
    listed = {}
    for line in content.decode("ascii").splitlines():
        folder, next_offset, *pairs = line.split(" ")
        counts = (pair.split(":") for pair in pairs)
        listed[folder] = Listed({int(number): int(count) for number, count in counts}, int(next_offset))
    return listed
