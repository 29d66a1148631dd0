"""A query's position in each stream, as kept in Spark's checkpoint.

    {"v": 1, "streams": {
        "<stream>": {"epoch": "<32 hexadecimal digits>", "next": 4711, "segment": 3, "at": 9216}}}

``next`` is the first unread offset. ``epoch`` identifies the stream among others of the same name.
``segment`` and ``at``, if known, are the segment and position of that offset's record, so that the next batch
need not read what is before it. ``mark`` is a digest of the message before ``next``, for brokers without
epochs. A leaf.
"""
from dataclasses import dataclass

from gomq_py.spark.errors import GomqError

VERSION = 1


@dataclass(frozen=True)
class Position:
    """A place in one stream."""

    epoch: str
    next: int
    segment: int = 0
    at: int = 0  # 0: unknown
    mark: str = ""


def encode(positions):
    """The JSON (as a dict) of {stream: Position}."""
    return {"v": VERSION, "streams": {
        name: {
            "epoch": one.epoch, "next": one.next,
            **({"segment": one.segment, "at": one.at} if one.at else {}),
            **({"mark": one.mark} if one.mark else {}),
        }
        for name, one in sorted(positions.items())}}


def decode(given):
    """{stream: Position} from the JSON of ``encode``. Raises GomqError for another version or program."""
    try:
        if given["v"] != VERSION:
            raise GomqError(
                f"the checkpoint holds offsets of version {given['v']}, this gomq-py knows {VERSION}: "
                "use the one that wrote it")
        return {
            str(name): Position(
                str(one["epoch"]), int(one["next"]), int(one.get("segment", 0)), int(one.get("at", 0)),
                str(one.get("mark", "")),
            )
            for name, one in given["streams"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise GomqError(
            f"the checkpoint holds no offsets of the gomq source: {given!r}. Is it another query's?"
        ) from None
