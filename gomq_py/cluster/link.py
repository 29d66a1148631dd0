"""Link: a follower's connection to its leader.

Used by ``follower``, which reads frames from it. One greenlet writes acks and checksums; a second greenlet
makes the checksums.
"""
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event

from gomq_py.cluster.wire import frames
from gomq_py.cluster.wire.frames import Frame, FrameReader
from gomq_py.cluster.wire.messages import Ack, Refused
from gomq_py.net import connecting

# A leader says something at least every 0.5 s.
SILENCE_S = 5.0
ACK_S = 0.5
# Time for telling the leader why this node leaves.
LEAVING_S = 0.2
READ_OCTETS = 256 * 1024


class Link:
    """A connection to ``address``, (host, port), made by the constructor.

    ``tls``: a ``gevent.ssl.SSLContext``, or None. ``epoch``, ``counts_received``: of the leader, set at login
    (login.FollowerLogin). The constructor raises OSError, and may switch greenlets; if its greenlet is killed
    then, no socket stays open.
    """

    def __init__(self, address: tuple[str, int], tls: Any):
        self.reader = FrameReader(frames.LOGIN_MAX_PAYLOAD)
        self.epoch = 0
        self.counts_received = False
        self._out: list[bytes] = []
        self._wake, self._has_listed = Event(), Event()
        self.is_closed = False
        self._is_leaving = False
        self._fault: Exception | None = None
        self._greenlets: list[Any] = []
        self._socket = connect(address, tls)

    def begin(self, ack: Callable[[], Ack], hashed: Callable[["Link"], bool]) -> None:
        """Start the sending greenlets, after the login.

        ``ack()`` makes the Ack that is sent every 0.5 s, and when the position that counts for the leader has
        changed. After each ``wake``, ``hashed(link)`` is called again and again until it returns False.
        """
        self.reader.limit = frames.MAX_PAYLOAD
        self._greenlets = [gevent.spawn(self._write, ack), gevent.spawn(self._hash, hashed)]

    def next_frame(self) -> Frame:
        """Return the next frame. Raises FrameError; OSError at the connection's end. May switch greenlets."""
        while (frame := self.reader.next()) is None:
            self.reader.feed(self._received())
        return frame

    def _received(self) -> bytes:
        try:
            octets = self._socket.recv(READ_OCTETS)
        except TimeoutError:
            raise OSError(f"the leader has said nothing for {SILENCE_S:g} s") from None
        except OSError as error:
            raise self._fault or error from None
        if not octets:
            raise self._fault or OSError("the leader has closed the connection")
        return octets

    def send_now(self, octets: bytes) -> None:
        """Send bytes of the login at once. Raises OSError. May switch greenlets."""
        self._socket.sendall(octets)

    def send(self, octets: bytes) -> None:
        """Queue bytes to be sent by the writing greenlet."""
        self._out.append(octets)
        self._wake.set()

    def wake(self) -> None:
        """Wake both greenlets, because files may have been listed or changes flushed."""
        self._wake.set()
        self._has_listed.set()

    def close(self, fault: Exception | None = None) -> None:
        """Shut the connection down. Callable from any greenlet; never switches greenlets.

        ``next_frame`` then raises the first ``fault`` that was given, or another OSError.
        """
        self.is_closed = True
        self._fault = self._fault or fault
        self.wake()
        try:
            # not SSLSocket's, which takes the session away from whoever is reading
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def leave(self, fault: Exception) -> None:
        """Tell the leader of this node's failure, and make ``next_frame`` raise the first ``fault``.

        Callable from any greenlet; never switches greenlets.
        """
        self._fault = self._fault or fault
        self._is_leaving = True
        text = Refused(str(fault) or repr(fault))
        self.send(frames.encode(frames.REFUSED, text.encode(), self.epoch))
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RD)
        except OSError:
            pass

    def end(self) -> None:
        """Close, and wait until no greenlet of this link runs. May switch greenlets."""
        if self._is_leaving:
            gevent.joinall(self._greenlets[:1], LEAVING_S)
        self.close()
        gevent.joinall(self._greenlets)
        self._socket.close()

    # greenlets

    def _write(self, ack: Callable[[], Ack]) -> None:
        counted, ack_at = 0, time.monotonic()
        try:
            while not self.is_closed:
                self._wake.wait(max(0.0, ack_at - time.monotonic()))
                self._wake.clear()
                out, self._out = self._out, []
                latest = ack()
                counts = latest.received if self.counts_received else latest.flushed
                if counts != counted or time.monotonic() >= ack_at:
                    counted, ack_at = counts, time.monotonic() + ACK_S
                    out.append(frames.encode(frames.ACK, latest.encode(), self.epoch))
                if out:
                    self._socket.sendall(b"".join(out))
                if self._is_leaving and not self._out:
                    return
        except Exception as error:
            self.close(error)

    def _hash(self, hashed: Callable[["Link"], bool]) -> None:
        try:
            while not self.is_closed:
                self._has_listed.wait()
                self._has_listed.clear()
                while not self.is_closed and hashed(self):
                    pass
        except Exception as error:
            self.close(error)


def connect(address: tuple[str, int], tls: Any) -> Any:
    """Return a socket that is connected to a leader's cluster port. Arguments as for ``Link``.

    Raises OSError. May switch greenlets; if this greenlet is killed then, no socket stays open.
    """
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # of a label without letters, or with too many
        raise OSError(f"{address[0]!r} is not a host name: {error}") from None
    made = connecting.connect(address[0], found, SILENCE_S * len(found))
    try:
        made.settimeout(SILENCE_S)
        return made if tls is None else tls.wrap_socket(made, server_hostname=address[0])
    except BaseException:
        made.close()
        raise
