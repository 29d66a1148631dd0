"""OpenSSL: makes calls of the library that the ssl module does not offer.

read_ahead(): OpenSSL then reads up to 16 KiB at once and finds the records in these bytes. By default OpenSSL
makes two system calls per record (head, rest): half of a small record's cost. take_turns():
a read no longer waits while a peer sends only changes of keys.
"""
import _ssl
import ctypes
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

ENABLE_KTLS = 1 << 3  # SSL_OP_ENABLE_KTLS of OpenSSL 3; ssl.OP_ENABLE_KTLS from Python 3.12 on
CLEAR_MODE, AUTO_RETRY = 78, 1 << 2  # SSL_CTRL_CLEAR_MODE, SSL_MODE_AUTO_RETRY
# The beginning of an ssl object in CPython 3.11 to 3.14: header, weak reference to the socket, the library's
# SSL, context.
WORD_OCTETS = ctypes.sizeof(ctypes.c_void_p)
SOCKET_AT = object.__basicsize__
LIBRARY_AT = SOCKET_AT + WORD_OCTETS
CONTEXT_AT = LIBRARY_AT + WORD_OCTETS
KNOWN_TYPE: Any = getattr(_ssl, "_SSLSocket")  # noqa: B009 (what is known of the module does not name it)


def read_ahead(ssl_object: Any) -> int:
    """Have OpenSSL read ahead for ``ssl_object``, after its handshake. Returns the address of OpenSSL's
    own SSL object, valid while ``ssl_object`` lives, or 0 if read-ahead is impossible.
    """
    # The kernel decrypts, the object has another layout, or the library hides its functions.
    library = _library()
    if library is None or ssl_object.context.options & ENABLE_KTLS or not _is_known(ssl_object):
        return 0
    connection = _word(ssl_object, LIBRARY_AT)
    library.SSL_set_read_ahead(connection, 1)
    return connection


def take_turns(ssl_object: Any) -> None:
    """Make a read of ``ssl_object`` raise SSLWantReadError if messages of TLS but no data have come."""
    # Such as a change of keys; by default the read would wait for more.
    library = _library()
    if library is not None and _is_known(ssl_object):
        library.SSL_ctrl(_word(ssl_object, LIBRARY_AT), CLEAR_MODE, AUTO_RETRY, None)


def end_writing(ssl_object: Any) -> bool:
    """Send the end of the stream, without ending reads. Returns False if that is impossible now."""
    # The ssl module's ``unwrap`` and ``shutdown`` wait for the peer's end. False also if the socket has no
    # room.
    library = _library()
    if library is None or not _is_known(ssl_object):
        return False
    return library.SSL_shutdown(_word(ssl_object, LIBRARY_AT)) >= 0


def has_pending(connection: int) -> Callable[[], int]:
    """Return a function that returns 1 if OpenSSL holds unread bytes, even an incomplete record, else 0.
    ``connection``: the address of OpenSSL's own SSL object.
    """
    return partial(_library().SSL_has_pending, ctypes.c_void_p(connection))


@cache
def addresses() -> tuple[int, int, int]:
    """Return the addresses of OpenSSL's functions SSL_read, SSL_has_pending and SSL_get_error."""
    library = _library()
    read, pending, error = (
        ctypes.cast(function, ctypes.c_void_p).value or 0
        for function in (library.SSL_read, library.SSL_has_pending, library.SSL_get_error)
    )
    return read, pending, error


def _is_known(ssl_object: Any) -> bool:
    """Whether the object has the memory layout that this module expects."""
    if sys.implementation.name != "cpython" or type(ssl_object) is not KNOWN_TYPE:
        return False
    if type(ssl_object).__basicsize__ < CONTEXT_AT + WORD_OCTETS:
        return False
    return _word(ssl_object, CONTEXT_AT) == id(ssl_object.context) and _word(ssl_object, LIBRARY_AT) != 0


def _word(ssl_object: Any, at: int) -> int:
    return ctypes.c_void_p.from_address(id(ssl_object) + at).value or 0


@cache
def _library() -> Any:
    """Return the OpenSSL library that the ssl module uses, or None if it cannot be called."""
    library = ctypes.PyDLL(getattr(_ssl, "__file__", None))  # its calls are too short to let others run
    try:
        library.SSL_read.restype = library.SSL_get_error.restype = ctypes.c_int
        library.SSL_set_read_ahead.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.SSL_set_read_ahead.restype = None
        library.SSL_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
        library.SSL_ctrl.restype = ctypes.c_long
        for function in (library.SSL_has_pending, library.SSL_shutdown):
            function.argtypes = [ctypes.c_void_p]
            function.restype = ctypes.c_int
    except AttributeError:
        return None
    return library
