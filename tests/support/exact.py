"""Octets at their exact size, so that AddressSanitizer sees one octet read too far.

A bytes object ends with a NUL, a bytearray and the hub's buffers have room behind the data: an over-read
there hits memory that is ours. ``exact`` copies into a heap block of just that size; ``fenced`` forbids what
lies behind a position of a longer buffer, where there is a sanitizer.
"""
import ctypes
from contextlib import contextmanager

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = (ctypes.c_size_t,)
_libc.free.argtypes = (ctypes.c_void_p,)


def _sanitizer_call(name):
    try:
        call = getattr(_libc, name)
    except AttributeError:
        return None
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    call.restype = None
    return call


_poison = _sanitizer_call("__asan_poison_memory_region")
_unpoison = _sanitizer_call("__asan_unpoison_memory_region")
SANITIZED = _poison is not None


@contextmanager
def exact(data):
    """``data`` as a view of a heap block of exactly its size; dead afterwards."""
    block = _libc.malloc(len(data))
    try:
        ctypes.memmove(block, bytes(data), len(data))
        view = memoryview((ctypes.c_ubyte * len(data)).from_address(block)).cast("B")
        try:
            yield view
        finally:
            view.release()
    finally:
        _libc.free(block)


@contextmanager
def fenced(buffer, end):
    """Nobody may touch ``buffer[end:]`` (a bytearray or writable mapping that is not resized meanwhile)."""
    count = len(buffer) - end
    if not SANITIZED or count <= 0:
        yield
        return
    with memoryview(buffer) as view:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view, end))
    _poison(address, count)
    try:
        yield
    finally:
        _unpoison(address, count)
