"""Encodes a query's position in each stream for Spark's checkpoint:

    {"v": 1, "streams": {
        "<stream>": {"epoch": "<32 hexadecimal digits>", "next": 4711, "segment": 3, "at": 9216}}}

``next`` is the first unread offset. ``epoch`` identifies the stream: a later stream of the same name has
another epoch. ``segment`` and ``at``, if known, say where the record of ``next`` begins, so that the next
batch can skip earlier records. For streams without an epoch, ``mark`` is a digest of the message before
``next``.
"""
from dataclasses import dataclass

from gomq_py.spark.errors import GomqError

VERSION = 1


@dataclass(frozen=True)
class Position:
    """A query's position in one stream: ``next`` is the first unread offset. ``segment``, ``at``: file number
    and byte position of the record with this offset, if known. ``epoch``, ``mark``: identify the stream.
    """

    epoch: str
    next: int
    segment: int = 0
    at: int = 0  # 0: unknown
    mark: str = ""


def encode(positions):
    """Turn {stream: Position} into a dict, which Spark stores as JSON."""
    return {"v": VERSION, "streams": {
        name: {
            "epoch": one.epoch, "next": one.next,
            **({"segment": one.segment, "at": one.at} if one.at else {}),
            **({"mark": one.mark} if one.mark else {}),
        }
        for name, one in sorted(positions.items())}}


def behind(ends, latest, firsts):
    """Return {stream: number of messages between ``ends`` and ``latest``}, both {stream: Position}. A
    stream is counted from its first offset (``firsts``: {stream: offset}) if its position in ``ends`` is
    missing, has another epoch, or lies before that offset.
    """
    return {
        name: max(0, one.next - max(firsts[name], (
            ends[name].next if name in ends and ends[name].epoch == one.epoch else 0)))
        for name, one in latest.items()}


def decode(given):
    """Turn a dict made by ``encode`` into {stream: Position}. Raises GomqError for any other dict."""
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
