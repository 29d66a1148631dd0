"""Events: changes of files as the payload of EVENTS frames.

A payload is a sequence of operations: each has its number in one byte, then its fields. Integers are big
endian. A path is its length (u16) and UTF-8 with surrogateescape, relative to the data folder.

    1  CREATED         id u64, size u64, path        7  FOLDER_REMOVED  path
    2  FOLDER_CREATED  path                          8  FLUSHED
    3  WRITTEN         id u64, start u64, length u32, the bytes
    4  RESIZED         id u64, size u64              9  LISTED_FOLDER   path              (9 to 12: of a sync)
    5  RENAMED         id u64, source, target       10  LISTED          id u64, size u64, path
       (id 0: a folder)                             11  LISTED_ALL      the listing is complete
    6  UNLINKED        id u64, path                 12  SYNCED          the sync is complete
                                                    13  HURRY           flush soon

Ids of files are those of storage.disk.register. storage.disk.replication explains each event.
"""
from struct import Struct

(
    CREATED, FOLDER_CREATED, WRITTEN, RESIZED, RENAMED, UNLINKED, FOLDER_REMOVED, FLUSHED, LISTED_FOLDER,
    LISTED, LISTED_ALL, SYNCED, HURRY,
) = range(1, 14)

_ID, _ID_AND_SIZE, _WRITTEN = Struct(">Q"), Struct(">QQ"), Struct(">QQI")
_LENGTH = Struct(">H")
_OP_ID, _OP_ID_AND_SIZE, _OP_WRITTEN = Struct(">BQ"), Struct(">BQQ"), Struct(">BQQI")
# What a WRITTEN takes besides its bytes.
WRITTEN_OVERHEAD = _OP_WRITTEN.size
assert WRITTEN_OVERHEAD == 21
# Most octets of a file. The largest files of a leader are its logs of definitions and users, far below. The
# HASHES of a longer one would not fit into a frame, and its blocks would be read for hours.
MOST_OCTETS = 64 << 30
# Most octets of a name directly in the data folder: the swap of a sync (storage.disk.swap) puts 10 octets in
# front, and file systems take 255.
MOST_TOP_OCTETS = 245


class EventError(Exception):
    """A payload of events is malformed, or has a path that is not allowed."""


# operations, as the leader writes them; all return bytes

def created(file_id, size, path):
    return _OP_ID_AND_SIZE.pack(CREATED, file_id, size) + _path(path)


def folder_created(path):
    return b"\x02" + _path(path)


def written(file_id, start, octets):
    """Return the bytes of a WRITTEN. ``octets``: bytes-like, at most MAX_PAYLOAD - WRITTEN_OVERHEAD."""
    return b"".join((_OP_WRITTEN.pack(WRITTEN, file_id, start, len(octets)), octets))


def put_written(room, at, file_id, start, count):
    """Write the head of a WRITTEN of ``count`` bytes at offset ``at`` of the bytearray ``room``.

    Returns the offset at which the caller puts the bytes.
    """
    _OP_WRITTEN.pack_into(room, at, WRITTEN, file_id, start, count)
    return at + WRITTEN_OVERHEAD


def resized(file_id, size):
    return _OP_ID_AND_SIZE.pack(RESIZED, file_id, size)


def renamed(file_id, source, target):
    """Return the bytes of a RENAMED. ``file_id`` 0: a folder."""
    return _OP_ID.pack(RENAMED, file_id) + _path(source) + _path(target)


def unlinked(file_id, path):
    return _OP_ID.pack(UNLINKED, file_id) + _path(path)


def folder_removed(path):
    return b"\x07" + _path(path)


def flushed():
    return b"\x08"


def listed_folder(path):
    return b"\x09" + _path(path)


def listed(file_id, size, path):
    return _OP_ID_AND_SIZE.pack(LISTED, file_id, size) + _path(path)


def listed_all():
    return b"\x0b"


def synced():
    return b"\x0c"


def hurry():
    return b"\x0d"


def decode(payload, follower):
    """Call the method of ``follower`` for each operation in ``payload`` (bytes), in order.

    The arguments are the operation's fields, as in ``follower.written(file_id, start, octets)``, where
    ``octets`` is a memoryview that stays valid. Raises EventError at the first malformed operation, and the
    errors of the follower's methods.
    """
    octets = _Fields(payload)
    while not octets.at_end:
        op = octets.take(1)[0]
        if op not in _READERS:
            raise EventError(f"unknown operation {op} at byte {octets.at - 1} of {len(payload)}")
        name, read = _READERS[op]
        getattr(follower, name)(*read(octets))


def check_path(path):
    """Raise EventError unless ``path`` is a path within the data folder that may be replicated.

    It must not contain empty parts, "." or "..".
    """
    parts = path.split("/")
    if "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
        raise EventError(f"path {path!r} is not one of a data folder")
    if len(parts[0].encode("utf-8", "surrogateescape")) > MOST_TOP_OCTETS:
        raise EventError(f"the first name in path {path!r} is longer than {MOST_TOP_OCTETS} bytes")
    if is_of_one_node(parts[0]):
        raise EventError(f"path {path!r} belongs to one node and is not replicated")


def is_of_one_node(name):
    """Return whether a name in the data folder is never replicated: begins with a dot, or is lost+found."""
    # Such names are about one node or its file system (storage.disk.data_dir.OF_THIS_NODE, the cluster's own,
    # snapshots).
    return name.startswith(".") or name == "lost+found"


def _path(path):
    octets = path.encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(octets)) + octets


class _Fields:
    """Reads the fields of operations. Raises EventError for fields cut short or out of range."""

    __slots__ = ("at", "_octets")

    def __init__(self, payload):
        self.at = 0
        self._octets = memoryview(payload)

    @property
    def at_end(self):
        return self.at == len(self._octets)

    def take(self, count):
        """Return the next ``count`` bytes as a memoryview."""
        start, self.at = self.at, self.at + count
        if self.at > len(self._octets):
            raise EventError(f"an operation is cut short: {self.at} bytes wanted of {len(self._octets)}")
        return self._octets[start:self.at]

    def path(self):
        length, = _LENGTH.unpack(self.take(_LENGTH.size))
        path = str(self.take(length), "utf-8", "surrogateescape")
        check_path(path)
        return path

    def id_or_0(self):
        return _ID.unpack(self.take(_ID.size))[0]

    def id_and_size(self):
        file_id, size = _ID_AND_SIZE.unpack(self.take(_ID_AND_SIZE.size))
        self._check(file_id, size)
        return file_id, size

    def id_size_and_path(self):
        return *self.id_and_size(), self.path()

    def written(self):
        file_id, start, length = _WRITTEN.unpack(self.take(_WRITTEN.size))
        self._check(file_id, start + length)
        return file_id, start, self.take(length)

    @staticmethod
    def _check(file_id, end):
        if not file_id:
            raise EventError("file id 0 is no file's")
        if end > MOST_OCTETS:
            raise EventError(f"file {file_id} cannot have {end} bytes: {MOST_OCTETS} are the most")


def _nothing(fields):
    return ()


def _one_path(fields):
    return fields.path(),


# Operation -> (method of a follower, reader of its arguments).
_READERS = {
    CREATED: ("created", _Fields.id_size_and_path),
    FOLDER_CREATED: ("folder_created", _one_path),
    WRITTEN: ("written", _Fields.written),
    RESIZED: ("resized", _Fields.id_and_size),
    RENAMED: ("renamed", lambda fields: (fields.id_or_0(), fields.path(), fields.path())),
    UNLINKED: ("unlinked", lambda fields: (fields.id_or_0(), fields.path())),
    FOLDER_REMOVED: ("folder_removed", _one_path),
    FLUSHED: ("flushed", _nothing),
    LISTED_FOLDER: ("listed_folder", _one_path),
    LISTED: ("listed", _Fields.id_size_and_path),
    LISTED_ALL: ("listed_all", _nothing),
    SYNCED: ("synced", _nothing),
    HURRY: ("hurry", _nothing),
}
