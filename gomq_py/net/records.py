"""Records: reads several TLS records in one call.

OpenSSL returns one record at a time. A client that writes message by message makes a record of each message.
One record per read would cost a parser's pass, a poll and a round of the event loop for 60 bytes. Never
waits.
"""
import time
from ssl import OPENSSL_VERSION_INFO, SSLWantReadError, SSLWantWriteError
from typing import Any

from gomq_py.net import openssl, ssl_calls

# Most records of one read: a small one takes 1 us, or 2 to 3 if OpenSSL reads each by itself.
RECORDS_MAX = 256
# Octets that OpenSSL reads ahead at a time. Of a begun record it reads only the rest, so the socket may hold
# more although OpenSSL has nothing left. Then: least overhead of a record.
AHEAD_OCTETS, SEAL_OCTETS = 16384, 22
# A read that took this long does not look for more. Usual ones take 0.1 ms, but changes of keys, which bring
# no octets, 6 to 9 ms in each 16 KiB.
LONG_NS = 1_000_000
# From OpenSSL 3.2 on, SSL_has_pending overlooks octets behind a change of keys. The compiled calls see these.
PENDING_IS_KNOWN = OPENSSL_VERSION_INFO < (3, 2)


class RecordReader:
    """Reads in one call all TLS records of an ``ssl_object`` that have arrived and fit into the buffer."""

    __slots__ = ("_read", "_has_pending", "_calls", "_may_have_more", "_is_over", "_failure")

    # If the stream ends after some octets, the next read reports the end.
    def __init__(self, ssl_object: Any):
        self._read = ssl_object.read
        self._may_have_more = ssl_object.pending() > 0
        self._is_over = False
        self._failure: OSError | None = None
        self._calls = None
        connection = openssl.read_ahead(ssl_object) if PENDING_IS_KNOWN or ssl_calls.is_native() else 0
        self._has_pending = openssl.has_pending(connection) if connection else _nobody_knows
        if connection and ssl_calls.is_native():
            read, has_pending, get_error = openssl.addresses()
            self._calls = ssl_calls.calls_of(connection, read, has_pending, get_error)

    def pending(self) -> int:
        """True if TLS may hold bytes, or the end of the stream, that a poll of the socket does not show."""
        return self._is_over or self._may_have_more

    def receive_into(self, view: Any) -> int:
        """Read into ``view`` without waiting. Returns the number of bytes, 0 at the end of the stream. Raises
        SSLWantReadError, SSLWantWriteError, OSError.
        """
        if self._is_over:
            if self._failure is not None:
                raise self._failure
            return 0
        self._may_have_more = False
        count = 0
        if self._calls is not None:
            count = ssl_calls.read_records(
                self._calls, view, RECORDS_MAX, AHEAD_OCTETS, SEAL_OCTETS, LONG_NS)
            error = ssl_calls.error_of(self._calls)
            if error in (ssl_calls.NONE, ssl_calls.WANT_READ, ssl_calls.WANT_WRITE):
                self._may_have_more = ssl_calls.has_more(self._calls)
                if error != ssl_calls.NONE and count == 0:
                    raise SSLWantReadError if error == ssl_calls.WANT_READ else SSLWantWriteError
                return count
        return self._receive_by_module(view, count)

    def _receive_by_module(self, view: Any, count: int) -> int:
        """Read by the ssl module, which raises errors. Returns the number of filled bytes of ``view``.
        ``count``: bytes filled before.
        """
        room = len(view)
        taken = 0
        began_ns = time.monotonic_ns()
        try:
            for _ in range(RECORDS_MAX):
                got = self._read(room - count, view[count:])
                if got == 0:
                    self._is_over = True
                    return count
                count += got
                taken += got + SEAL_OCTETS
                if not self._has_pending():
                    if taken < AHEAD_OCTETS or time.monotonic_ns() - began_ns >= LONG_NS:
                        return count
                    taken = 0
                if count == room:
                    break
            self._may_have_more = self._has_pending() > 0
        except SSLWantReadError:  # nothing more just now
            if count == 0:
                raise
        except SSLWantWriteError:  # OpenSSL must first answer a change of keys
            self._may_have_more = self._has_pending() > 0
            if count == 0:
                raise
        except OSError as error:
            if count == 0:
                raise
            self._is_over, self._failure = True, error
        return count


def _nobody_knows() -> int:
    """Return 1: more may be pending. Used where openssl.has_pending() would tell nothing."""
    # Without read-ahead, no function tells whether the socket holds another record.
    return 1
