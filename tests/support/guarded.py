"""Buffers that end at an inaccessible page: one octet read too far by compiled code
is a crash instead of luck.
"""
import ctypes
import mmap

_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


class GuardedBuffer:
    """A reusable region of ``capacity`` octets in front of a page that may not be touched."""

    def __init__(self, capacity=16 * _PAGE):
        self.capacity = -(-capacity // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, self.capacity + _PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if _libc.mprotect(ctypes.c_void_p(address + self.capacity), ctypes.c_size_t(_PAGE), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
        self._view = memoryview(self._map)

    def place(self, data):
        """A read-only view of ``data`` whose last octet is the last one before the guard;
        valid until the next call.
        """
        start = self.capacity - len(data)
        self._view[start:self.capacity] = data
        return self._view[start:self.capacity].toreadonly()
