"""Mapping: maps a file for reading and writing, and flushes it without a descriptor.

Used by storage.disk.files. On Linux a mapping holds the open file from which it was made. ``msync`` flushes
that file as ``fdatasync`` does, and reports every error of the disk since the file was opened or last
flushed. A descriptor opened later would miss errors that were reported before.
"""
import ctypes
import errno
import functools
import mmap
import os
import sys

# macOS: msync leaves the bytes in the drive's cache.
CAN_FLUSH_MAPPINGS = sys.platform == "linux"

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_MS_SYNC = 4  # linux: asm-generic/mman-common.h
_MAP_FIXED = 0x10
# Python's mmap keeps a duplicate of the descriptor, which can be switched off from 3.13 on.
_OPTIONS: dict[str, bool] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
_abandoned: list[mmap.mmap] = []


def map_file(fd, size, path=None):
    """Map the file's first ``size`` bytes, shared. Returns the mapping. The caller closes the descriptor.
    Raises OSError with ``path``.
    """
    try:
        return _map_file(fd, size)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _map_file(fd, size):
    if _OPTIONS or not CAN_FLUSH_MAPPINGS:
        return mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=_READ_WRITE, **_OPTIONS)
    # An anonymous mapping, which has no descriptor; the file is then mapped in its place.
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=_READ_WRITE)
    address = address_of(mapping)
    if _libc().mmap(address, size, _READ_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) != address:
        number = ctypes.get_errno()
        # never closed: another thread may have mapped something there by now
        _abandoned.append(mapping)
        raise OSError(number, os.strerror(number))
    return mapping


def flush_mapping(mapping):
    """Make the content of a mapping, and its file's size, survive a power failure. Blocks without the
    interpreter's lock. Raises OSError.
    """
    while _libc().msync(address_of(mapping), len(mapping), _MS_SYNC):
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


def advise(mapping, start, count, advice):
    """Call ``madvise`` for a part of a mapping. Raises OSError. Blocks without the interpreter's lock, which
    Python's own ``madvise`` would hold.
    """
    if _libc().madvise(address_of(mapping) + start, count, advice):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def address_of(mapping):
    """Return the mapping's address in memory, valid until the mapping is closed."""
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
