"""Functions on raw buffers: read and write integers, copy, compare, compute the CRC-32C.

The compiled version is inline C in ``octets.pxd``. ``p`` is any bytes-like object here and a C pointer in
compiled modules; ``i`` is an offset into ``p``. The compiled version checks no bounds: callers check every
length first. Imports no other module of the package.
"""
import sys
from importlib import machinery, util
from struct import Struct


def _extension():
    """Return the C extension of crc32c, imported without that package's ``__init__`` if possible."""
    # That imports importlib.metadata and so 3 MB of modules for mail and archives.
    name = "crc32c._crc32c"
    if name in sys.modules:
        return sys.modules[name]
    package = util.find_spec("crc32c")
    spec = (
        machinery.PathFinder.find_spec(name, package.submodule_search_locations) if package is not None
        else None
    )
    if spec is None or not isinstance(spec.loader, machinery.ExtensionFileLoader):
        import crc32c
        return crc32c
    module = sys.modules[name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_crc32c = _extension().crc32c

_BE16, _BE32, _BE64 = Struct(">H"), Struct(">I"), Struct(">Q")
_LE16, _LE32, _LE64 = Struct("<H"), Struct("<I"), Struct("<Q")

put_be16, put_be32, put_be64 = _BE16.pack_into, _BE32.pack_into, _BE64.pack_into
put_le16, put_le32, put_le64 = _LE16.pack_into, _LE32.pack_into, _LE64.pack_into


def be16(p, i):
    return _BE16.unpack_from(p, i)[0]


def be32(p, i):
    return _BE32.unpack_from(p, i)[0]


def be64(p, i):
    return _BE64.unpack_from(p, i)[0]


def le16(p, i):
    return _LE16.unpack_from(p, i)[0]


def le32(p, i):
    return _LE32.unpack_from(p, i)[0]


def le64(p, i):
    return _LE64.unpack_from(p, i)[0]


def copy(target, target_at, source, source_at, count):
    """Copy ``count`` bytes from offset ``source_at`` to ``target_at``. The two ranges must not overlap."""
    target[target_at:target_at + count] = source[source_at:source_at + count]


def part(p, i, count):
    """Return a copy of ``count`` bytes of ``p``, from offset ``i`` on, as bytes."""
    return bytes(p[i:i + count])


def same(a, a_at, b, b_at, count):
    return a[a_at:a_at + count] == b[b_at:b_at + count]


def crc32c(seed, p, start, count):
    """Return the CRC-32C of ``p[start:start + count]``. ``seed``: the CRC so far, or any start value."""
    return _crc32c(memoryview(p)[start:start + count], seed)


def pointer(buffer):
    """Return a C pointer to the start of a buffer in compiled modules, the buffer itself in plain Python.

    While the pointer is used, the buffer must stay alive and keep its size; an mmap must not be closed.
    """
    return buffer
