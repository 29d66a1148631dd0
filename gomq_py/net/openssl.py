"""What OpenSSL can do for a connection and the ssl module has no name for.

Read-ahead: of itself OpenSSL reads a record in two calls of the system, its head and then the rest, half of
what a small one costs. With it, it reads what is there, up to 16 KiB, and takes the records out of that.
Turns: of itself a read of OpenSSL's goes on behind changes of keys and the like until there are octets, for
as long as a peer sends nothing else.

Beside tls, and beside records, which has to know what OpenSSL has read already: the socket does not call for
it.
"""
import _ssl
import ctypes
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

ENABLE_KTLS = 1 << 3  # SSL_OP_ENABLE_KTLS of OpenSSL 3; ssl.OP_ENABLE_KTLS from Python 3.12 on
CLEAR_MODE, AUTO_RETRY = 78, 1 << 2  # SSL_CTRL_CLEAR_MODE, SSL_MODE_AUTO_RETRY
# How an object of the ssl module begins in CPython 3.11 to 3.13: its header, a weak reference to the socket,
# the library's SSL, the context.
WORD_OCTETS = ctypes.sizeof(ctypes.c_void_p)
SOCKET_AT = object.__basicsize__
LIBRARY_AT = SOCKET_AT + WORD_OCTETS
CONTEXT_AT = LIBRARY_AT + WORD_OCTETS
KNOWN_TYPE: Any = getattr(_ssl, "_SSLSocket")  # noqa: B009 (what is known of the module does not name it)


def read_ahead(ssl_object: Any) -> int:
    """Have OpenSSL read ahead for ``ssl_object``, of whose handshake it has read all.

    Returns the address of the library's SSL, good for as long as ``ssl_object`` lives. 0: it reads as ever,
    because the kernel decrypts, the object is another one's, or the library keeps its names to itself, as one
    that was linked into Python may.
    """
    library = _library()
    if library is None or ssl_object.context.options & ENABLE_KTLS or not _is_known(ssl_object):
        return 0
    connection = _word(ssl_object, LIBRARY_AT)
    library.SSL_set_read_ahead(connection, 1)
    return connection


def take_turns(ssl_object: Any) -> None:
    """Have a read of ``ssl_object`` end as if nothing had come, where all that OpenSSL had from the socket
    was for itself.
    """
    library = _library()
    if library is not None and _is_known(ssl_object):
        library.SSL_ctrl(_word(ssl_object, LIBRARY_AT), CLEAR_MODE, AUTO_RETRY, None)


def has_pending(connection: int) -> Callable[[], int]:
    """What says whether OpenSSL has octets that were not read from it, of which some or all may be the
    beginning of a record.
    """
    return partial(_library().SSL_has_pending, ctypes.c_void_p(connection))


@cache
def addresses() -> tuple[int, int, int]:
    """Those of SSL_read, SSL_has_pending and SSL_get_error, where there is a connection."""
    library = _library()
    read, pending, error = (
        ctypes.cast(function, ctypes.c_void_p).value or 0
        for function in (library.SSL_read, library.SSL_has_pending, library.SSL_get_error)
    )
    return read, pending, error


def _is_known(ssl_object: Any) -> bool:
    """Whether the object is laid out as above: what should lie behind the library's SSL does."""
    if sys.implementation.name != "cpython" or type(ssl_object) is not KNOWN_TYPE:
        return False
    if type(ssl_object).__basicsize__ < CONTEXT_AT + WORD_OCTETS:
        return False
    return _word(ssl_object, CONTEXT_AT) == id(ssl_object.context) and _word(ssl_object, LIBRARY_AT) != 0


def _word(ssl_object: Any, at: int) -> int:
    return ctypes.c_void_p.from_address(id(ssl_object) + at).value or 0


@cache
def _library() -> Any:
    """The OpenSSL that the ssl module uses, or None where it cannot be called."""
    library = ctypes.PyDLL(getattr(_ssl, "__file__", None))  # its calls are too short to let others run
    try:
        library.SSL_read.restype = library.SSL_get_error.restype = ctypes.c_int
        library.SSL_set_read_ahead.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.SSL_set_read_ahead.restype = None
        library.SSL_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
        library.SSL_ctrl.restype = ctypes.c_long
        library.SSL_has_pending.argtypes = [ctypes.c_void_p]
        library.SSL_has_pending.restype = ctypes.c_int
    except AttributeError:
        return None
    return library
