"""Pages: what the process and the system's cache hold of a file.

Below files, which says when. Changes no file. What blocks says so; the rest is quick.
"""
import contextlib
import errno
import mmap
import os

from gomq_py.storage.disk.mapping import CAN_FLUSH_MAPPINGS, advise

_POPULATE_READ = 22  # MADV_POPULATE_READ, linux/mman.h
_WOULD_BE_SIGBUS = frozenset({errno.EFAULT, 133})  # what it answers then; 133 is EHWPOISON


def fetch_ahead(file, whole=True):
    """Have the system give the file its pages, or the first one alone, and return it.

    The first touch of a new mapping would have Linux fetch as much as its readahead at once: 4 MiB took 4 ms.
    """
    if hasattr(os, "posix_fadvise"):
        file.cached = file.size if whole else min(mmap.PAGESIZE, file.size)
        os.posix_fadvise(file.fd, 0, file.cached, os.POSIX_FADV_WILLNEED)
    return file


def fetch_on(file, end):
    """As fetch_ahead, of what the system has no pages for yet, up to ``end``. Quick where that is little."""
    if file.fd >= 0:
        os.posix_fadvise(file.fd, file.cached, end - file.cached, os.POSIX_FADV_WILLNEED)
    file.cached = end


def populate(mapping, start, end):
    """Have the pages of a mapping read now.

    False where the system has no such call (Linux before 5.14). Raises OSError (EIO) for what cannot be read.
    Blocks without the interpreter's lock.
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
            raise OSError(errno.EIO, f"octets {start} to {end} cannot be read") from error
        raise
    return True


def let_go(file):
    """Have the process map none of the file's pages any more until it touches them again; what was written to
    them stays, in the system's cache.

    For a file that is flushed next and not used meanwhile. The flush of a page that is mapped interrupts
    every processor which runs a thread of the process: for 8 MiB 2048 times, and here once.
    """
    if CAN_FLUSH_MAPPINGS and file.map is not None:
        with contextlib.suppress(OSError):  # locked in memory, say: then the flush costs more
            advise(file.map, 0, len(file.map), mmap.MADV_DONTNEED)


def read_range(fd, start, end):
    """Read [start, end) and throw it away. Raises OSError (EIO), for a file that ends before too."""
    buffer = bytearray(min(1 << 20, max(1, end - start)))
    while start < end:
        count = os.preadv(fd, (buffer,), start)
        if not count:
            raise OSError(errno.EIO, f"the file ends at {start}, before octet {end}")
        start += count
