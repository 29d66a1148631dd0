"""Pumps: pass bytes between pairs of connected sockets, in both directions, until both sides have ended.

Work in callbacks of the event loop, without greenlets. While one socket is full, the other is not read, so
that at most one read of each direction is kept. The end of one side is passed on, and the other direction
continues. Sockets are plain or TLS.
"""
from collections.abc import Callable
from socket import SHUT_WR
from typing import Any

import gevent

from gomq_py.hub.loop_socket import is_plain
from gomq_py.net.receiving import is_not_now, receive_functions

# Octets read at a time: as many as a listener's sockets keep unsent (UNSENT_OCTETS).
READ_OCTETS = 128 * 1024
# Time for the client to end after the server has: as for lingering close (LINGER_S in hub.lingering_close).
ENDING_S = 5.0
# Most reads in a row of a TLS socket that holds more octets.
READS_PER_TURN = 4
READABLE, WRITABLE = 1, 2


class Pumps:
    """Passes bytes between pairs of sockets, in callbacks of the event loop."""

    def __init__(self) -> None:
        self.room = memoryview(bytearray(READ_OCTETS))  # each read leaves it before the next one
        self._open: dict[_Pump, None] = {}

    def join(self, client: Any, server: Any, over: Callable[[], None]) -> "_Pump":
        """Pass bytes between two sockets until both have ended or one has failed, but only for ENDING_S after
        the server's end. Then ``over()``, which must close the sockets, is called once. Returns the
        pump, whose ``close()`` ends this earlier.
        """
        pump = _Pump(client, server, over, self)
        self._open[pump] = None
        pump.begin()
        return pump

    def close(self) -> None:
        for pump in list(self._open):
            pump.close()

    def forget(self, pump: "_Pump") -> None:
        """Remove a pump that has ended. The pump calls this."""
        self._open.pop(pump, None)


class _Pump:
    __slots__ = ("_pumps", "_over", "_to_server", "_to_client", "_timer")

    def __init__(self, client: Any, server: Any, over: Callable[[], None], pumps: Pumps):
        self._pumps = pumps
        self._over: Callable[[], None] | None = over
        self._timer: Any = None
        self._to_server = _Direction(client, server, pumps.room, self._client_ended, self.close)
        self._to_client = _Direction(server, client, pumps.room, self._server_ended, self.close)

    def begin(self) -> None:
        self._to_server.begin()
        self._to_client.begin()

    def close(self) -> None:
        """Stop, and call ``over``. A second call does nothing."""
        over, self._over = self._over, None
        if over is None:
            return
        self._to_server.stop()
        self._to_client.stop()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.stop()
            timer.close()
        self._pumps.forget(self)
        over()

    def _client_ended(self) -> None:
        if self._to_client.has_ended:
            self.close()

    def _server_ended(self) -> None:
        if self._to_server.has_ended:
            self.close()
        else:
            self._timer = gevent.get_hub().loop.timer(ENDING_S)
            self._timer.start(self.close, update=True)


class _Direction:
    """Passes bytes from one socket to the other. ``ended()`` is called after the source's end was passed on,
    ``failed()`` when a socket has failed.
    """

    __slots__ = (
        "has_ended", "_receive", "_pending", "_send", "_target", "_room", "_rest", "_ended", "_failed",
        "_reads", "_writes", "_is_stopped")

    def __init__(
        self, source: Any, target: Any, room: memoryview, ended: Callable[[], None],
        failed: Callable[[], None],
    ):
        loop = gevent.get_hub().loop
        self._receive, self._pending = receive_functions(source)
        self._send = target._sock.send if is_plain(target) else target._sslobj.write
        self._target = target
        self._room = room
        self._rest: Any = b""
        self._ended, self._failed = ended, failed
        self._reads = loop.io(source.fileno(), READABLE)
        self._writes = loop.io(target.fileno(), WRITABLE)
        self.has_ended = self._is_stopped = False

    def begin(self) -> None:
        self._reads.start(self._readable)
        if self._pending is not None and self._pending():
            self._readable()

    def stop(self) -> None:
        self._is_stopped = True
        for watcher in (self._reads, self._writes):
            watcher.stop()
            watcher.close()
        self._rest = b""

    # in the loop

    def _readable(self) -> None:
        if self._is_stopped:
            return
        try:
            for _ in range(READS_PER_TURN):
                if not self._pass_on() or self._pending is None or not self._pending():
                    return
            gevent.get_hub().loop.run_callback(self._readable)  # a poll does not show octets that TLS holds
        except OSError as error:
            if not is_not_now(error):
                self._failed()

    def _pass_on(self) -> bool:
        """Do one read, and write the bytes. Returns whether to read on. Raises OSError."""
        count = self._receive(self._room)
        if not count:
            self._pass_end_on()
            return False
        try:
            sent = self._send(self._room[:count])
        except OSError as error:
            if not is_not_now(error):
                raise
            sent = 0
        if sent == count:
            return True
        self._rest = memoryview(bytes(self._room[sent:count]))
        self._reads.stop()
        self._writes.start(self._writable)
        return False

    def _writable(self) -> None:
        try:
            self._rest = self._rest[self._send(self._rest):]
        except OSError as error:
            if not is_not_now(error):
                self._failed()
            return
        if not self._rest:
            self._rest = b""
            self._writes.stop()
            self.begin()

    def _pass_end_on(self) -> None:
        self._reads.stop()
        self.has_ended = True
        if is_plain(self._target):
            self._target._sock.shutdown(SHUT_WR)
        elif not _end_writing(self._target._sslobj):
            raise OSError("the end could not be passed on")
        self._ended()


def _end_writing(ssl_object: Any) -> bool:
    from gomq_py.net import openssl  # a broker without TLS has no need of it
    return openssl.end_writing(ssl_object)
