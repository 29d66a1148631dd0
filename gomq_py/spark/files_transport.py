"""The transport that reads streams from the files of a data folder: a broker's, or a backup of one.

A closed segment is read to its end. While a broker runs, the active segment is read up to the flushed length,
which the broker notes in the segment's file now and then. Without a broker the active segment is read up to
its last valid record. This transport changes no file and takes no lock.
"""
import hashlib
import os
import re
import socket

from gomq_py.spark.errors import GomqError, NoStream
from gomq_py.spark.transport import Segment, SegmentGone, SegmentTransport, Shape
from gomq_py.storage.format import columns, head

_NAME = re.compile(r"msgs\.(\d{10})")
_HOLDER = re.compile(r"PID (\d+) @ (\S+)")
# Above any ordinal.
_ALL = 1 << 32


class FilesTransport(SegmentTransport):
    """Reads the streams of one vhost from the files in a broker's data folder."""

    def __init__(self, options, credentials=None):
        self.folder = options["dataDir"]
        self.vhost = options["vhost"]

    def close(self):
        """Do nothing: no file is open between calls."""

    def names(self):
        """Raise GomqError, because a data folder has only hashes of the streams' names."""
        raise GomqError(
            "option subscribePattern needs transport=http: a data folder does not tell names; "
            "name streams with subscribe")

    def describe(self, name):
        folder = self._folder(name)
        is_live = self._is_live()
        parts, epoch = [], ""
        for number in self._numbers(folder):
            try:
                part, of_segment = self._segment(os.path.join(folder, f"msgs.{number:010}"), number, is_live)
            except FileNotFoundError:
                continue  # deleted meanwhile
            if part is not None:
                parts.append(part)
                epoch = of_segment
        if not parts:
            raise NoStream(f"stream '{name}' in vhost '{self.vhost}' has no readable segment in {folder}")
        return Shape(epoch, parts[0].first_offset, parts[-1].next_offset, tuple(parts))

    def offset_for_timestamp(self, name, timestamp_ms):
        """Return the offset of the first message at or after a Unix time in ms.

        Returns the end offset if there is no such message. Raises GomqError.
        """
        shape = self.describe(name)
        for part in shape.segments:
            if part.next_offset > part.first_offset and part.last_timestamp_ms >= timestamp_ms:
                with open(os.path.join(self._folder(name), f"msgs.{part.number:010}"), "rb") as file:
                    content = file.read(part.bytes)
                return _first_at(content, part, timestamp_ms)
        return shape.end_offset

    def octets_into(self, room, name, epoch, number, at, count):
        try:
            with open(os.path.join(self._folder(name), f"msgs.{number:010}"), "rb") as file:
                found = head.decode(file.read(head.HEAD_BYTES), head.MSGS_MAGIC)
                if found is None or found.incarnation.hex() != epoch:
                    raise SegmentGone("the file is another stream's")
                file.seek(at)
                while count > 0:
                    came = file.readinto(room()[:count])
                    if not came:
                        return
                    count -= came
                    yield came
        except FileNotFoundError:
            raise SegmentGone("there is no such file") from None

    def _folder(self, name):
        queues = os.path.join(self.folder, "queues")
        if not os.path.isdir(queues):
            raise GomqError(
                f"option dataDir: {self.folder} is no data folder of a gomq-py, it has no folder queues")
        wanted = folder_id(self.vhost, name) + "."
        found = sorted(entry for entry in os.listdir(queues) if entry.startswith(wanted))
        if not found:
            raise NoStream(
                f"there is no stream '{name}' in vhost '{self.vhost}' in {self.folder}, "
                "or it never held a message")
        if len(found) > 1:
            raise GomqError(
                f"there are several logs of stream '{name}' in {queues}, "
                f"one is being deleted: {', '.join(found)}")
        return os.path.join(queues, found[0])

    def _numbers(self, folder):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            names = []  # just deleted
        if any(name.startswith("acks.") for name in names):
            raise NoStream(
                f"what is in {folder} is a queue, no stream: attach a stream to its exchange and read that")
        return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)

    def _is_live(self):
        # Does not try the lock, which could keep a broker from starting.
        try:
            with open(os.path.join(self.folder, ".lock"), encoding="utf-8", errors="replace") as file:
                text = file.read(300)
        except FileNotFoundError:
            return False
        holder = _HOLDER.match(text)
        if "stopped" in text or holder is None:
            return False
        return holder[2] != socket.gethostname() or os.path.exists(f"/proc/{holder[1]}")

    def _segment(self, path, number, is_live):
        """Return (Segment, epoch) of a segment file; (None, "") if its head is not written yet."""
        with open(path, "rb") as file:
            first = file.read(head.HEAD_BYTES)
            found = head.decode(first, head.MSGS_MAGIC)
            if found is None:
                return None, ""
            seal = head.decode_seal(found.seed, first)
            epoch = found.incarnation.hex()
            if seal is not None:
                return Segment(
                    number, found.first_offset, found.first_offset + seal.next_ordinal, seal.end,
                    seal.first_timestamp_ms, seal.last_timestamp_ms), epoch
            flushed = head.decode_mark(found.seed, head.SYNCED_SALT, first, head.SYNCED_AT)
            file.seek(0)
            content = file.read(flushed) if is_live else file.read()
        return _scanned(content, number, found), epoch


def folder_id(vhost, name):
    """Return the first part, before the dot, of the name of a queue's folder (docs/storage-format.md)."""
    first, second = vhost.encode("utf-8", "surrogateescape"), name.encode("utf-8", "surrogateescape")
    return hashlib.sha256(b"%d:%b%b" % (len(first), first, second)).hexdigest()[:40]


def _scanned(content, number, found):
    """Return the Segment of a file that still grows, up to its last valid record. ``found``: decoded head."""
    first_ms = last_ms = 0
    block = columns.Block(4096, 1 << 30)
    for block in _blocks(content, found, block):
        first_ms = first_ms or _time_ms(block, 0)
        last_ms = _time_ms(block, block.count - 1)
    end = min(block.at, len(content))
    return Segment(
        number, found.first_offset, found.first_offset + block.next_ordinal, end, first_ms, last_ms)


def _blocks(content, found, block):
    """Yield ``block`` repeatedly, filled each time with the next valid records. Skips damaged records."""
    at = head.HEAD_BYTES
    while True:
        status = block.walk(content, at, len(content), found, 0, _ALL)
        if block.count:
            yield block
        at = block.at
        if status == columns.SPOILED:
            block.skip()
            at = block.at
        elif status == columns.MISSING:
            block.accept(content)
        elif status == columns.DAMAGED:
            at = block.seek(content, at, len(content), found.seed)
            if at < 0:
                return
        elif status != columns.FULL:
            return


def _first_at(content, part, timestamp_ms):
    found = head.decode(content[:head.HEAD_BYTES], head.MSGS_MAGIC)
    for block in _blocks(content, found, columns.Block(4096, 1 << 30)):
        for row in range(block.count):
            if _time_ms(block, row) >= timestamp_ms:
                return int.from_bytes(block.offsets[8 * row:8 * row + 8], "little")
    return part.next_offset


def _time_ms(block, row):
    return int.from_bytes(block.timestamps[8 * row:8 * row + 8], "little") // 1000
