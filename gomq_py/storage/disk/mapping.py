"""Mapping: a file in memory, to read and to write, and its flush, without a descriptor.

Below files, which says when. On Linux a mapping holds the open file that it was made of. ``msync`` flushes
that as ``fdatasync`` flushes its descriptor, and fails if the disk has refused anything since the file was
opened or last flushed, in the system's own write-back, too. A descriptor that is opened again for the flush
would hear only of errors of which nobody was told.
"""
import ctypes
import errno
import functools
import mmap
import os
import sys

# macOS: msync leaves the octets in the drive's cache.
CAN_FLUSH_MAPPINGS = sys.platform == "linux"

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_MS_SYNC = 4  # linux: asm-generic/mman-common.h
_MAP_FIXED = 0x10
# Python's mmap keeps a duplicate of the descriptor for itself, unless told not to, which is possible from
# 3.13 on.
_OPTIONS: dict[str, bool] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
_abandoned: list[mmap.mmap] = []


def map_file(fd, size, path=None):
    """A mapping of ``size`` octets of the file, shared.

    The descriptor is the caller's to close. Raises OSError, which names ``path``.
    """
    try:
        return _map_file(fd, size)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _map_file(fd, size):
    if _OPTIONS or not CAN_FLUSH_MAPPINGS:
        return mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=_READ_WRITE, **_OPTIONS)
    # One of nothing, which has no descriptor; the file is then mapped into its place.
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=_READ_WRITE)
    address = address_of(mapping)
    if _libc().mmap(address, size, _READ_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) != address:
        number = ctypes.get_errno()
        # never closed: another thread may have mapped something in its place by now
        _abandoned.append(mapping)
        raise OSError(number, os.strerror(number))
    return mapping


def flush_mapping(mapping):
    """Make the octets of a mapping, and its file's size, outlive a power cut.

    Blocks without the interpreter's lock. Raises OSError.
    """
    while _libc().msync(address_of(mapping), len(mapping), _MS_SYNC):
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


def advise(mapping, start, count, advice):
    """``madvise`` of a part of a mapping.

    Blocks without the interpreter's lock, which Python's own keeps. Raises OSError.
    """
    if _libc().madvise(address_of(mapping) + start, count, advice):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def address_of(mapping):
    """Where it lies in memory, while it is not closed."""
    first = ctypes.c_char.from_buffer(mapping)
    return ctypes.addressof(first)


@functools.cache
def _libc():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    )
    libc.msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc
