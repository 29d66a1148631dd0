"""Sealed segments: checks that a leader's msgs file still has all records counted in its seal.

A msgs file has the messages of a segment. A seal holds the closing counts of a full segment. Used by
``sync_source``: a boot does not read sealed segments, so a sync may be the first to find their damage.
"""
import mmap
import os
import posix

from gomq_py.storage.disk.pages import read_range
from gomq_py.storage.format import head as heads
from gomq_py.storage.format import record
from gomq_py.storage.format.known_damage import is_known, known_ranges, lost_among
from gomq_py.storage.format.record import RecordScanner

_MSGS, _ACKS = "msgs.", "acks."


def holds_messages(path):
    """Return whether ``path`` is the path of a msgs file."""
    return os.path.basename(path).startswith(_MSGS)


def lost_in(path):
    """Return a text that says where a sealed msgs file has lost messages; "" without a loss or a seal.

    For a thread, while the broker works. Blocks. Raises OSError.
    """
    # Messages that are acked do not count, and damage that was reported before does not. The file is mapped,
    # not copied.
    content, file = _mapped(path)
    begin = content[:heads.HEAD_BYTES]
    head = heads.decode(begin, heads.MSGS_MAGIC)
    seal = head and heads.decode_seal(head.seed, begin)
    if not seal:
        return ""
    damaged = _damaged(content, head, seal)
    if not damaged:
        return ""
    runs = _acked_runs(path, head)
    known = known_ranges(os.listdir(os.path.dirname(path)))
    lost = [
        f"{first} to {behind}" for first, behind, count in damaged
        if lost_among(first, behind, count, runs) and not is_known(known, head.number, first, behind)]
    if content[:heads.HEAD_BYTES] != begin or not os.path.samestat(os.stat(path), file):
        return ""  # recycled meanwhile: the octets or the acks are those of another segment
    return f"bytes {lost[0]} do not check" if lost else ""


def _damaged(content, head, seal):
    """Return [(start, end, records)] of the damaged regions: offsets, and the number of records in each."""
    scanner = RecordScanner(
        content, heads.HEAD_BYTES, min(seal.end, len(content)), head.seed, head.begun_ms)
    while scanner.next():  # tally() would keep the hub from the interpreter for the whole file
        pass
    if scanner.at < seal.end:
        scanner.damaged.append((scanner.at, seal.end, max(1, seal.next_ordinal - scanner.next_ordinal)))
    return scanner.damaged


def _acked_runs(path, head):
    """Return the acknowledged records of the segment (Acks.runs); () without an acks file, as in a stream."""
    folder, name = os.path.split(path)
    twin = head.twin(heads.ACKS_MAGIC)
    try:
        acks, _ = _mapped(os.path.join(folder, _ACKS + name.removeprefix(_MSGS)))
    except FileNotFoundError:
        return ()
    if heads.decode(acks[:heads.HEAD_BYTES], heads.ACKS_MAGIC) != twin:
        return ()
    return record.load_acks(acks, twin.seed).runs


def _mapped(path):
    """Return (a file's mapped content, its os.stat_result). Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not found.st_size:
            return b"", found
        read_range(fd, 0, found.st_size)  # a bad sector raises here; in the mapping it would be SIGBUS
        return mmap.mmap(fd, found.st_size, access=mmap.ACCESS_READ), found
    finally:
        posix.close(fd)
