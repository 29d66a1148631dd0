"""Records: reading what TLS has for us, several records in one call.

Beside stream, which takes a read for one walk and gives everybody a turn after it. OpenSSL hands out one
record at a time, and a client that writes message by message makes one of each: a walk, a poll and a turn of
the loop for 60 octets. Never decrypts and never waits.
"""
from ssl import SSLWantReadError, SSLWantWriteError
from typing import Any

# To look for a second record in vain costs as much as a small walk: where there was none, so many reads pass
# before the next look.
READS_BETWEEN_LOOKS = 16
# In one read: OpenSSL takes 2 to 3 us for a small one, two calls of the system among them, and others have
# their turn after it.
RECORDS_MAX = 64


class RecordReader:
    """Reads from an ``ssl_object``: as much as it has and the room takes, while its peer writes so fast that
    there is more than one record. An end that comes behind octets is kept for the next read.
    """

    __slots__ = ("_read", "_pending", "_wait", "_is_over", "_failure")

    def __init__(self, ssl_object: Any):
        self._read = ssl_object.read
        self._pending = ssl_object.pending
        self._wait = READS_BETWEEN_LOOKS
        self._is_over = False
        self._failure: OSError | None = None

    def pending(self) -> int:
        """How much there is to read for which the socket will not call; of the end, which was read from it,
        too, more than 0.
        """
        return self._is_over or self._pending()

    def receive_into(self, view: Any) -> int:
        """As a socket's ``recv_into``, non-blocking. Raises SSLWantReadError, OSError."""
        if self._is_over:
            if self._failure is not None:
                raise self._failure
            return 0
        count: int = self._read(len(view), view)
        if self._wait:
            self._wait -= 1
            return count
        first = count
        try:
            for _ in range(RECORDS_MAX - 1):
                if not 0 < count < len(view):
                    break
                got = self._read(len(view) - count, view[count:])
                if got == 0:
                    self._is_over = True
                    break
                count += got
        except (SSLWantReadError, SSLWantWriteError):
            pass  # nothing more just now
        except OSError as error:
            self._is_over, self._failure = True, error
        if count == first:
            self._wait = READS_BETWEEN_LOOKS
        return count
