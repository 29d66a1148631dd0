"""Not now: what a socket, plain or TLS, raises that has nothing to read or takes nothing at this moment.

A leaf. By the names of ssl's errors, because that module loads OpenSSL, which with its tables is 5 MB that a
broker without TLS does not take.
"""
_READ, _WRITE = "SSLWantReadError", "SSLWantWriteError"


def is_not_now(error: BaseException) -> bool:
    """Whether the same call is to be made again when the socket is ready, because all is well."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in (_READ, _WRITE)


def has_to_write_first(error: BaseException) -> bool:
    """Whether TLS has to write before it can read, to answer a change of keys, and the socket has no room."""
    return type(error).__name__ == _WRITE
