"""Acks: which records of one segment are gone, and how often others came back.

Behind the head (format.head), entries of 8 octets, little-endian.

    offset size
         0    4  word: a multiple of 8, plus the kind
         4    4  CRC-32C of the word, from the seed + the entry's index

    kind  word - kind
       1  position           ACKED: the record there is gone
       2  position           RUN_START, followed by
       3  position           RUN_END: all records from RUN_START's position up to, not including, this one are
                             gone
       4  position           REQUEUED: the record there came back, followed by
       5  count * 8          COUNT: how many deliveries of it have failed, counting the one in progress;
                             overwritten in place, perhaps followed by
       6  due * 8            DUE: when it may be delivered again (due_value), if it still counts as many;
                             overwritten in place

An entry that does not check is not there: a page that a power cut kept from the disk, or what the file held
in an earlier life. So entries may have gaps and are read past them. A run costs two entries and is only
written for three records or more, so an acks file with one entry for each record its segment can hold always
has room for the next ack; REQUEUED, COUNT and DUE never use that room. A leaf: octets in, entries out.
"""
from array import array

from gomq_py import octets
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.format import record

ENTRY_BYTES = 8
ACKED = 1
RUN_START = 2
RUN_END = 3
REQUEUED = 4
COUNT = 5
DUE = 6

# Where a record of the largest segment may end (a location has 28 bits for a position): what lies beyond was
# never written.
LARGEST_POSITION = 1 << 28

# A count is kept in 29 bits; nobody delivers a message that often.
LARGEST_COUNT = (1 << 29) - 1

# Reading stops after this much without a single entry: what lies behind so long a gap was not flushed, and
# its records come back as redelivered.
GAP_BYTES = 65536


def capacity_for(msgs_bytes):
    """Size of the acks file for a msgs file of this capacity."""
    return HEAD_BYTES + (msgs_bytes - HEAD_BYTES) // record.SMALLEST_RECORD_BYTES * ENTRY_BYTES


def put_entry(p, index, seed, word):
    """Write the entry."""
    at = 128 + index * 8
    octets.put_le32(p, at, word)
    octets.put_le32(p, at + 4, octets.crc32c((seed + index) & 0xFFFFFFFF, p, at, 4))


def get_entry(p, index, seed):
    """The word of the entry, or 0 when none is there. The caller has checked the index against the file."""
    at = 128 + index * 8
    word = octets.le32(p, at)
    if word == 0 or octets.le32(p, at + 4) != octets.crc32c((seed + index) & 0xFFFFFFFF, p, at, 4):
        return 0
    return word


def put_mark(p, at, seed, position):
    """Write a position and its checksum at ``at``: the marks of format.head, with the salt already in the
    seed.
    """
    octets.put_le32(p, at, position)
    octets.put_le32(p, at + 4, octets.crc32c(seed, p, at, 4))


def due_value(due_s, count):
    """What a DUE entry holds: the lowest bit of the count it goes with, and 28 bits of the time, in Unix
    seconds.
    """
    return (due_s & 0xFFFFFFF) << 1 | (count & 1)


def due_of(value, count, now_s):
    """The time in Unix seconds that is meant, within four years of now; 0 where the entry goes with another
    count.
    """
    if value & 1 != count & 1:
        return 0
    return now_s + (((value >> 1) - now_s + 0x8000000) & 0xFFFFFFF) - 0x8000000


def is_among(position, runs):
    """Whether a position lies in one of these runs, given as [start, end, start, ...]."""
    return any(start <= position < end for start, end in zip(runs[::2], runs[1::2]))


class Acks:
    """What an acks file says.

    ``runs``: start, end, start, end... of what is gone, sorted, without overlap, half open; ``counts``:
    position -> (count, index of the COUNT entry); ``dues``: position -> due_value; ``entries``: index behind
    the last entry; ``holes``: entries before it that are not there and may be used again.
    """

    __slots__ = ("runs", "counts", "dues", "entries", "holes")

    def __init__(self):
        self.runs = array("Q")
        self.counts = {}
        self.dues = {}
        self.entries = self.holes = 0


def load(buffer, seed, entries=-1):
    """Read the entries of an acks file; ``entries`` from its seal, else all there are."""
    acks = Acks()
    limit = (len(buffer) - HEAD_BYTES) // ENTRY_BYTES
    if limit <= 0:
        return acks
    if 0 <= entries < limit:
        limit = entries
    found = []
    _collect(octets.pointer(buffer), seed, limit, acks, found)
    found.sort()
    _merge(found, acks.runs)
    return acks


def _collect(p, seed, limit, acks, found):
    index = valid = start = requeued = 0
    gap = GAP_BYTES // ENTRY_BYTES
    before = 0  # the kind of the entry just before, for those that come in pairs
    while index < limit and index - acks.entries <= gap:
        word = get_entry(p, index, seed)
        kind = word & 7
        if word:
            valid += 1
            acks.entries = index + 1
            position = word - kind
            if position > LARGEST_POSITION and kind != COUNT and kind != DUE:
                kind = 0
            elif kind == ACKED:
                found.append(position << 32 | (position + ENTRY_BYTES))
            elif kind == RUN_START:
                start = position
            elif kind == RUN_END and before == RUN_START and position > start:
                found.append(start << 32 | position)
            elif kind == REQUEUED:
                requeued = position
            elif kind == COUNT and before == REQUEUED:
                acks.counts[requeued] = (word >> 3, index)
            elif kind == DUE and before == COUNT and requeued:
                acks.dues[requeued] = word >> 3
        before = kind
        index += 1
    acks.holes = acks.entries - valid
    return 0


def _merge(found, runs):
    """Sorted ranges (start << 32 | end) into ``runs``, those that overlap as one.

    Not those that touch: a single entry does not end where its record does, and must be recognised by its
    length.
    """
    last_end = -1
    for item in found:
        start, end = item >> 32, item & 0xFFFFFFFF
        if last_end > start:
            if end > last_end:
                runs[len(runs) - 1] = last_end = end
        else:
            runs.append(start)
            runs.append(end)
            last_end = end
    return 0
