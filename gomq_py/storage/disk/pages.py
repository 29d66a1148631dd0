"""Pages: reads a file's pages into memory before their use, and drops them from the process. Used by
storage.disk.files. Changes no file. Functions that block say so; all others are quick.
"""
import contextlib
import errno
import mmap
import os

from gomq_py.storage.disk.mapping import CAN_FLUSH_MAPPINGS, advise

_POPULATE_READ = 22  # MADV_POPULATE_READ, linux/mman.h
_WOULD_BE_SIGBUS = frozenset({errno.EFAULT, 133})  # for pages whose touch raises SIGBUS; 133 is EHWPOISON


def fetch_ahead(file, whole=True):
    """Have the system read the file, or its first page only, into the page cache. Returns the file."""
    if hasattr(os, "posix_fadvise"):
        file.cached = file.size if whole else min(mmap.PAGESIZE, file.size)
        os.posix_fadvise(file.fd, 0, file.cached, os.POSIX_FADV_WILLNEED)
    return file


def fetch_on(file, end):
    """Have the system read uncached pages up to ``end`` into the page cache. Quick if they are few."""
    if file.fd >= 0:
        os.posix_fadvise(file.fd, file.cached, end - file.cached, os.POSIX_FADV_WILLNEED)
    file.cached = end


def populate(mapping, start, end):
    """Read the pages of [start, end) of a mapping now. Raises OSError (EIO) for unreadable pages. Returns
    False if the system has no such call (Linux before 5.14). Blocks without the interpreter's lock.
    """
    start -= start % mmap.PAGESIZE
    count = min(end, len(mapping)) - start
    if not CAN_FLUSH_MAPPINGS or count <= 0:
        return False
    try:
        advise(mapping, start, count, _POPULATE_READ)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False
        if error.errno in _WOULD_BE_SIGBUS:
            raise OSError(errno.EIO, f"bytes {start} to {end} cannot be read") from error
        raise
    return True


def let_go(file):
    """Drop a mapped file's pages from the process. The mapping stays valid, and written data stays in the
    page cache. For a file that is not used again before its next flush.
    """
    # A flush of mapped pages interrupts the processors on which the process runs once for each page, 2048
    # times for 8 MiB; this call interrupts them once.
    if CAN_FLUSH_MAPPINGS and file.map is not None:
        with contextlib.suppress(OSError):  # for example locked in memory: the flush then costs more
            advise(file.map, 0, len(file.map), mmap.MADV_DONTNEED)


def read_range(fd, start, end):
    """Read and discard the bytes [start, end). Raises OSError (EIO), also if the file ends before ``end``."""
    buffer = bytearray(min(1 << 20, max(1, end - start)))
    while start < end:
        count = os.preadv(fd, (buffer,), start)
        if not count:
            raise OSError(errno.EIO, f"the file ends at {start}, before byte {end}")
        start += count
