"""Open file: a mapped file or a log, which stays open until its last user closes it; also functions that
flush files and allocate disk space.

Used by storage.disk.files, which opens and changes files and reports changes to the replicators. Descriptors
are closed by ``posix.close``: gevent's ``os.close`` closes later, when the number may be another file's.
"""
import errno
import os
import posix
import re
import sys
from collections import deque

from gomq_py.storage.disk.mapping import CAN_FLUSH_MAPPINGS, flush_mapping, map_file

ZEROS = bytes(1 << 20)

# fallocate's errors on file systems that cannot reserve: NFS before 4.2, ZFS before 2.1.
NO_RESERVING = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

# Modes of fallocate, linux/falloc.h.
_KEEP_SIZE = 0x01


class File:
    """An open file, for the event loop's thread. ``retain`` keeps it open, and out of the segment pool.

        map         the read-write mapping; None for a log or an empty file. truncate, extend and close make
                    pointers into the mapping invalid
        fd          the descriptor; -1 if the file is closed or has only its mapping
        identity    (device, inode) of a file that has only its mapping
        cached      end of the pages in the page cache; after it a write call is faster than the mapping
    """

    __slots__ = (
        "path", "fd", "size", "cached", "synced_size", "map", "mapped", "named", "broken", "identity",
        "closed", "_holders", "_closing", "_aside", "_counted_in",
    )

    def __init__(self, path, fd, size, mapped, named=True):
        self.path = path
        self.fd = -1  # the caller still owns it
        self.size = self.cached = size
        # size of the file when its last successful sync began; 0: unknown
        self.synced_size = 0
        self.map = None
        self.mapped = mapped
        self.named = named
        self.broken = None  # error after which a log's end is unknown
        self.identity = None
        self.closed = False
        self._holders = 0
        self._closing = False
        self._aside = None
        self._counted_in = None  # set of descriptors that counts it
        self.map = self._mapping(fd)
        self.fd = fd

    def __del__(self, close=posix.close):
        """Close the descriptor of a file that is still open, for example after a failed boot."""
        if self.fd >= 0:
            self._uncount()
            close(self.fd)

    def __repr__(self):
        return f"<File {self.path} fd={self.fd} size={self.size}>"

    @property
    def is_retained(self):
        """Whether ``retain`` holds the file, which must then stay open with its content."""
        return self._holders > 0

    def retain(self):
        """Keep the file open, and out of the segment pool, until ``release``."""
        self._holders += 1

    def release(self):
        """Undo one ``retain``. The last release closes the file if ``close`` was called before."""
        assert self._holders > 0, self.path
        self._holders -= 1
        if self._closing and not self._holders:
            self.close()

    def read(self, start, end):
        """Return a copy of the bytes [start, end), shorter if the file ends before ``end``."""
        if self.map is not None:
            return self.map[start:end]
        return os.pread(self.fd, end - start, start)

    def read_into(self, target, start, end):
        """Copy the bytes [start, end) to the start of ``target``, a memoryview. Returns their number, which
        is lower if the file ends before ``end``.
        """
        if self.map is None:
            return os.preadv(self.fd, (target[:end - start],), start)
        with memoryview(self.map)[start:end] as octets:
            target[:len(octets)] = octets
            return len(octets)

    def remap(self, fd=-1):
        """Map the whole file again. ``fd``: a descriptor of the file, used if the File has none. Raises
        BufferError while a view of the old mapping exists.
        """
        self.unmap()
        self.map = self._mapping(fd if self.fd < 0 else self.fd)

    def grow(self, size, fd):
        """Map the file again after it grew to ``size``, through the descriptor ``fd``. Raises OSError; then
        nothing has changed. The old mapping stays for its present users: a thread may be about to flush it.
        """
        self.map = map_file(fd, size, self.path) if self.mapped else None
        self.size = size

    def _mapping(self, fd):
        if not self.mapped or not self.size:
            return None
        return map_file(fd, self.size, self.path)

    def count_in(self, descriptors):
        """Add the file's descriptor to the set ``descriptors``. ``close`` removes the descriptor."""
        descriptors.add(self.fd)
        self._counted_in = descriptors

    def _uncount(self):
        if self._counted_in is not None:
            self._counted_in.discard(self.fd)
            self._counted_in = None

    def give_up_descriptor(self):
        """Close the descriptor of a mapped file. The file is flushed through its mapping from now on."""
        status = os.fstat(self.fd)
        self.identity = status.st_dev, status.st_ino
        fd, self.fd = self.fd, -1
        posix.close(fd)

    def unmap(self):
        """Drop the mapping. Raises BufferError while a view of it exists."""
        if self.map is not None:
            self.map.close()
            self.map = None

    def close(self, aside=None):
        """Close the file now or, if it is retained, at the last ``release``.

        ``aside(function, *arguments)``, if given, closes a deleted file in the background, because freeing
        disk space may take tens of milliseconds.
        """
        self._closing = True
        self._aside = aside or self._aside
        if self._holders or self.closed:
            return
        self.closed = True
        self._uncount()
        mapping, fd, self.map, self.fd = self.map, self.fd, None, -1
        if self._aside is None:
            close_parts(mapping, fd)
        else:
            self._aside(close_parts, mapping, fd)


class Reading:
    """Keeps a mapped file open, and out of the segment pool, for a slow reader until close(). ``fd``: a
    descriptor of the file.
    """

    __slots__ = ("file", "fd")

    def __init__(self, file, fd):
        file.retain()
        self.file = file
        self.fd = fd

    def close(self):
        """End the reading. A second call does nothing."""
        file, self.file = self.file, None
        if file is not None:
            if self.fd != file.fd:
                posix.close(self.fd)
            file.release()


class LogFile(File):
    """An open append-only log.

        size            length of the file
        accepted        byte strings that a thread will write next, in order
        end             length of the file after ``accepted`` is written
        room            end of the reserved disk space; None if the file system cannot reserve: appends then
                        write at once
        is_relied_on    confirms and other answers depend on this log; False for the second log of a
                        compaction
        failure         the error of a failed flush; it stays, because bytes may be lost
        failed()        None, or the owner's function that begins to replace this log: called in the event
                        loop after a failed flush, and now and then at later flushes
        fails_all       a failure fails every callback; False: only the callbacks of flushes with this log

    The thread that flushes the log changes ``size`` and takes from ``accepted``. The event loop's thread
    changes everything else.
    """

    __slots__ = ("accepted", "end", "room", "told", "is_relied_on", "fails_all", "failure", "failed")

    def __init__(self, path, fd, size):
        super().__init__(path, fd, size, False)
        self.accepted = deque()
        self.room = None
        self.is_relied_on = self.fails_all = True
        self.failure = self.failed = None
        self.begin_at(size)

    def begin_at(self, size):
        """Set the length of a log that has no accepted bytes to write."""
        self.size = self.end = self.told = size  # told: end of the bytes that replicators know

    @property
    def is_awaited(self):
        """Whether confirms or other answers depend on accepted bytes that are not written yet."""
        return self.is_in_use and bool(self.accepted)

    @property
    def is_in_use(self):
        """Whether confirms or other answers depend on this log. False after another log has replaced it."""
        return self.named and self.is_relied_on

    def forget_accepted(self):
        """Drop the unwritten bytes, because another log has replaced this log. A thread that fails to write
        them at this moment may put them back.
        """
        self.named = False
        self.accepted.clear()


def retain_room(fd):
    """Keep a file's disk space allocated while the file is deleted. Takes over the descriptor ``fd``. Returns
    (mapping or None, descriptor or -1) for ``close_parts``, which frees the space.
    """
    # A mapping needs no descriptor: a purge may unlink thousands of files at once. An empty file is not
    # mapped: it has no disk space.
    if not CAN_FLUSH_MAPPINGS:
        return None, fd
    mapping = None
    try:
        if os.fstat(fd).st_size:
            mapping = map_file(fd, 1)
    except OSError:
        return None, fd
    posix.close(fd)
    return mapping, -1


def close_parts(mapping, fd):
    """Close a File's mapping (or None) and its descriptor (-1: none)."""
    try:
        if mapping is not None:
            mapping.close()
    finally:
        if fd >= 0:
            posix.close(fd)


def check_sound(file):
    """Raise OSError if the log refuses appends, because cutting a partial write off has failed."""
    if file.broken is not None:
        raise OSError(file.broken.errno, f"log is closed since: {file.broken.strerror}", file.path)


def flush_file(file):
    """Make the file's content and size survive a power failure. Blocks without the interpreter's lock."""
    if file.fd >= 0:
        flush_descriptor(file.fd)
    else:
        flush_mapping(file.map)


def flush_descriptor(fd):
    """Make the file's content and size survive a power failure. Blocks without the interpreter's lock."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        import fcntl
        # macOS: fsync leaves the bytes in the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]


def flush_file_system(fd):
    """Flush all files and names of the file system of ``fd``. Blocks without the interpreter's lock. Raises
    OSError without a path.
    """
    import ctypes
    if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _can_flush_file_systems():
    """Return whether flush_file_system exists and reports failed writes, as on Linux from 5.8 on."""
    if not sys.platform.startswith("linux"):
        return False
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (5, 8)


CAN_FLUSH_FILE_SYSTEMS = _can_flush_file_systems()


def take_room(fd, start, count):
    """Allocate disk space for [start, start + count). Existing content stays."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, count)
        return
    size = os.fstat(fd).st_size  # macOS: can only allocate behind the end, by writing
    while size < start + count:
        size += os.pwrite(fd, ZEROS[:start + count - size], size)


def reserve_room(fd, start, count):
    """Allocate disk space for [start, start + count), perhaps after the file's end, without changing size or
    content. Returns False if the file system cannot do that. Raises OSError, whose ``filename`` is None.
    """
    number = errno.EINTR
    while number == errno.EINTR:
        number = _fallocate(fd, _KEEP_SIZE, start, count)
    if number and number not in NO_RESERVING:
        raise OSError(number, os.strerror(number))
    return not number


def _fallocate(fd, mode, start, count):
    import ctypes
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        return errno.ENOSYS
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return 0 if fallocate(fd, mode, start, count) == 0 else ctypes.get_errno()
