"""Stream offsets: keeps the next offset of each named consumer of a stream, in a mapped file in the stream's
folder.

Numbers are little-endian.

    offset size                                    head
         0    8  magic "GOMQOFFS"
         8    4  schema version 1
        12   16  incarnation of the stream
        28    4  CRC-32C of bytes 0..27: the seed of every other checksum in the file

    offset size                                    slot n, at 320 * (n + 1)
         0    1  length of the tag; 0: free
         1  255  consumer tag, followed by zeros
       256    4  CRC-32C of bytes 0..255, from the seed + n
       264   24  first half: offset u64, updated at u64 (Unix milliseconds), sequence u32, CRC-32C of these 20
                 bytes from the seed + n
       288   24  second half: the same

A new position overwrites the half with the lower sequence, so that a torn write leaves the previous position.
stream_store owns this object. The store's flushes include the file with low priority, so a consumer may get
some messages again after a power failure. Never switches greenlets.
"""
import os
from struct import Struct

from gomq_py import octets

NAME = "consumer_offsets"
HEAD_BYTES = 32
SLOT_BYTES = 320
FIRST_SLOTS = 25
# Most consumers remembered; the least recently moved are dropped for new ones. Clients make up tags by the
# thousand.
MOST_TAGS = 10_000
FORGOTTEN_AT_ONCE = 1000

_HEAD = Struct("<8sI16sI")
_HALF = Struct("<QQII")
_MAGIC = b"GOMQOFFS"
_HALVES_AT = (264, 288)
assert (_HEAD.size, _HALF.size) == (HEAD_BYTES, 24)


def unreadable(content):
    """Return how many consumers' positions in ``content``, a whole file, are damaged; None if its head is."""
    seed = octets.crc32c(0, content, 0, 28) if len(content) >= _HEAD.size else -1
    if not content.startswith(_MAGIC) or seed != int.from_bytes(content[28:32], "little"):
        return None
    slots = range(max(0, len(content) // SLOT_BYTES - 1))
    raws = ((slot, content[SLOT_BYTES * (slot + 1):SLOT_BYTES * (slot + 2)]) for slot in slots)
    return sum(raw[0] != 0 and _read(raw, (seed + slot) & 0xFFFFFFFF) is None for slot, raw in raws)


def stream_of(content):
    """Return the start of the stream's incarnation in ``content``: 16 hex digits, as in its folder's name."""
    return content[12:20].hex()


def checksum(content):
    """Return the CRC-32C of ``content``, a whole file. Differs between files, and between their versions."""
    return octets.crc32c(0, content, 0, len(content))


class StreamOffsets:
    """Keeps the next offset of each consumer, by consumer tag. ``file``: the open File; None while no
    consumer has a position. ``dirty``: True while the file has unflushed changes.
    """

    def __init__(self, folder, files, incarnation):
        self._folder = folder
        self._files = files
        head = _HEAD.pack(_MAGIC, 1, incarnation, 0)[:28]
        self._seed = octets.crc32c(0, head, 0, 28)
        self._head = head + self._seed.to_bytes(4, "little")
        self._slots = {}  # tag: (slot, offset, updated at, sequence)
        self._free = []
        self._room = 0
        self.file = self._checksum = None
        self.dirty = False

    def get(self, tag):
        """Return the next offset of a consumer; None for an unknown consumer."""
        kept = self._slots.get(tag)
        return None if kept is None else kept[1]

    def items(self):
        """Return [(tag, offset, Unix milliseconds of the last put)], in order of the last put."""
        return [
            (tag, kept[1], kept[2]) for tag, kept in sorted(self._slots.items(), key=lambda item: item[1][2])
        ]

    def put(self, tag, offset, now_ms):
        """Set a consumer's next offset. Raises OSError if the disk has no space for another consumer."""
        raw = tag.encode("utf-8", "surrogateescape")
        kept = self._slots.get(tag)
        if kept is None:
            slot = self._take_slot()
            sequence = 0
            self._write_tag(slot, raw)
        else:
            slot, sequence = kept[0], kept[3]
        sequence = (sequence + 1) & 0xFFFFFFFF
        at = SLOT_BYTES * (slot + 1) + _HALVES_AT[sequence & 1]
        half = _HALF.pack(offset, now_ms, sequence, 0)[:20]
        self._write(
            at, half + octets.crc32c((self._seed + slot) & 0xFFFFFFFF, half, 0, 20).to_bytes(4, "little")
        )
        self._slots[tag] = slot, offset, now_ms, sequence

    def forget(self, tag):
        """Delete a consumer's position. Returns whether it existed."""
        kept = self._slots.pop(tag, None)
        if kept is None:
            return False
        self._give_up(kept[0])
        return True

    def _give_up(self, slot):
        self._write(SLOT_BYTES * (slot + 1), bytes(SLOT_BYTES))
        self._free.append(slot)

    def checksum(self):
        """Return the checksum of the file's content; of its last content if closed; None without a file."""
        return self._checksum if self.file is None else checksum(self.file.read(0, self.file.size))

    def close(self):
        """Close the file without a flush."""
        self._checksum = self.checksum()
        file, self.file = self.file, None
        if file is not None:
            self._files.close(file)
        self.dirty = False

    def load(self, next_offset):
        """Read the positions of the last run. Returns the file's content; empty without a file."""
        # A position behind ``next_offset``, where a crash has lost the messages, becomes ``next_offset``. A
        # file with another head, as another stream's, is removed.
        path = os.path.join(self._folder, NAME)
        if not os.path.exists(path):
            return b""
        self.file = self._files.open(path)
        content = self.file.read(0, self.file.size)
        if content[:HEAD_BYTES] != self._head:
            self._files.close(self.file)  # another stream's, or a crash before its first flush
            self.file = None
            self._files.unlink(path)
            return content
        self._files.allocate(self.file)
        self._files.write_again(self.file, 0, self.file.size)  # so that the next flush covers it
        # a file cut short may lack even the head
        self._room = max(0, self.file.size // SLOT_BYTES - 1)
        for slot in range(self._room):
            found = self._read_slot(slot)
            if found is None:
                self._free.append(slot)
            else:
                tag, (offset, updated_ms, sequence) = found
                self._adopt(tag, (slot, min(offset, next_offset), updated_ms, sequence))
        return content

    def _adopt(self, tag, read):
        """Register a consumer's slot of the file; ``read``: (slot, offset, updated at, sequence). If the
        consumer has two slots, keep the slot that was updated later and clear the other.
        """
        # A consumer has two if its position was forgotten, then written to another slot, and a power cut kept
        # only the second of these writes.
        kept = self._slots.get(tag)
        if kept is not None and kept[2] > read[2]:
            kept, read = read, kept
        self._slots[tag] = read
        if kept is not None:
            self._give_up(kept[0])

    def _read_slot(self, slot):
        at = SLOT_BYTES * (slot + 1)
        return _read(self.file.read(at, at + SLOT_BYTES), (self._seed + slot) & 0xFFFFFFFF)

    def _take_slot(self):
        if len(self._slots) >= MOST_TAGS:
            for tag, _, _ in self.items()[:FORGOTTEN_AT_ONCE]:
                self.forget(tag)
        if not self._free:
            self._grow()
        return self._free.pop()

    def _grow(self):
        room = max(FIRST_SLOTS, min(2 * self._room, MOST_TAGS))
        size = SLOT_BYTES * (room + 1)
        if self.file is None:
            self.file = self._files.create(os.path.join(self._folder, NAME), size)
            self._write(0, self._head)
        else:
            self._files.extend(self.file, size)
        self._free.extend(range(room - 1, self._room - 1, -1))
        self._room = room

    def _write_tag(self, slot, raw):
        name = bytes((len(raw),)) + raw.ljust(255, b"\0")
        check = octets.crc32c((self._seed + slot) & 0xFFFFFFFF, name, 0, 256).to_bytes(4, "little")
        self._write(SLOT_BYTES * (slot + 1), (name + check).ljust(SLOT_BYTES, b"\0"))

    def _write(self, at, raw):
        self.file.map[at:at + len(raw)] = raw
        self._files.overwritten(self.file, at, at + len(raw))
        self.dirty = True


def _read(raw, seed):
    """Decode a slot as (tag, (offset, updated at, sequence)); None if it is free or damaged."""
    if raw[0] == 0 or octets.crc32c(seed, raw, 0, 256) != int.from_bytes(raw[256:260], "little"):
        return None
    halves = []
    for half in _HALVES_AT:
        offset, updated_ms, sequence, check = _HALF.unpack_from(raw, half)
        if sequence and octets.crc32c(seed, raw, half, 20) == check:
            halves.append((sequence, offset, updated_ms))
    if not halves:
        return None
    sequence, offset, updated_ms = max(halves)
    return raw[1:1 + raw[0]].decode("utf-8", "surrogateescape"), (offset, updated_ms, sequence)
