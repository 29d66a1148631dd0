"""Output: sends all bytes of one socket, without waiting (docs/decisions/0003).

Bytes that the socket does not take at once are kept, and sent when the socket is writable again. Until
then the output is ``blocked``: deliveries stop, replies are kept. If more than ``limit`` bytes are kept,
``on_overflow()`` is called, which should stop reading from the client. When the socket breaks,
``on_broken(error)`` is called and later bytes are dropped; nothing raises. A Source sends the bytes of a
file.
"""
import os
import socket as system_socket

import gevent
from gevent.event import Event

from gomq_py.hub.buffers import FLOOD_OUTPUT_OCTETS
from gomq_py.hub.loop_socket import descriptor_of, is_plain
from gomq_py.net import receiving
from gomq_py.net.receiving import is_not_now
from gomq_py.observability.log import logger

LOG = logger("net")

# Unread replies after which a client is not read any more: some ten thousand confirms or declare-oks.
LIMIT_OCTETS = 1024 * 1024
# Most octets of one send(): the socket buffer cuts larger ones. TLS wants refused octets again in full, so
# this is as large as the largest fill.
SEND_OCTETS = FLOOD_OUTPUT_OCTETS
# A client keeps up once it has taken so many octets of deliveries with each send taken whole.
KEEPS_UP_OCTETS = 1024 * 1024
WRITABLE = 2
CAN_SEND_FILES = hasattr(os, "sendfile") and hasattr(system_socket, "MSG_MORE")


class Output:
    """The only way to write to ``socket``, a non-blocking gevent socket, TLS socket or WebSocket.

    ``blocked``: the socket has not taken all data; deliveries wait for ``call_when_drained``.
    ``sent_octets``: number of bytes that the socket took. ``takes_sources``: write_source() may be called.
    ``account``: user and virtual host, set at login, for hub.budget. ``descriptor``: the socket's file
    descriptor until close(), or -1 if the socket's own methods must be called.
    """

    __slots__ = (
        "buffers", "sent_octets", "blocked", "broken", "error", "on_drained", "on_overflow", "on_broken",
        "limit", "allowance", "corked", "overflowed", "send", "fileno", "watcher", "pending", "waiters",
        "takes_sources", "source", "ahead", "taken_whole", "account", "descriptor",
    )

    def __init__(self, socket, buffers, limit=LIMIT_OCTETS):
        self.buffers = buffers
        self.send = send_function(socket)
        self.takes_sources = CAN_SEND_FILES and is_plain(socket)
        self.fileno = socket.fileno()
        self.descriptor = descriptor_of(socket) if receiving.is_native() else -1
        self.limit = limit
        self.account = None
        self.sent_octets = self.allowance = self.taken_whole = 0
        self.blocked = self.broken = self.corked = self.overflowed = False
        self.error = self.on_drained = self.on_overflow = self.on_broken = self.watcher = None
        self.pending = bytearray()
        self.waiters = None
        self.source = None  # sent before pending octets
        self.ahead = None  # octets that were pending before the source, sent first

    def write(self, data):
        """Send ``data`` after all earlier data. The caller must not use a bytearray afterwards."""
        if self.broken:
            return
        if self.corked or self.pending or self.source is not None:
            self.pending += data
            if not self.corked and not self.blocked:
                self._send_pending()
        else:
            sent = self._send(data) if len(data) <= SEND_OCTETS else self._send_first(data)
            if sent < len(data) and not self.broken:
                if isinstance(data, bytearray):
                    del data[:sent]
                    self.pending = data
                else:
                    self.pending = bytearray(memoryview(data)[sent:])
                if not self.blocked:
                    self._send_pending()
        if len(self.pending) > self.limit + self.allowance and not self.overflowed:
            self._over_limit()

    def write_large(self, data):
        """Send ``data`` after all earlier data, without counting it towards ``limit``."""
        self.allowance += len(data)
        self.write(data)
        if not self.pending:
            self.allowance = 0

    def write_source(self, source):
        """Send all bytes of ``source``, such as a part of a file, after all earlier data. Call it only if
        ``takes_sources`` is True and ``blocked`` is False.

        A Source has ``send(send, fileno)``, which sends a part small enough not to delay other connections,
        and returns how many bytes it sent. ``send`` raises OSError if the connection must end. ``left`` is
        the number of bytes still to send. ``close()`` is called once at the end.
        """
        if self.pending and not self.blocked:
            self._send_pending()
        if self.broken:
            source.close()
            return
        self.source = source
        self.ahead, self.pending = self.pending, bytearray()
        if not self.blocked:
            self._send_pending()

    def room_to_fill(self):
        """Return how many output buffer bytes to fill for one send_filled(): more if the peer reads fast."""
        if self.taken_whole < KEEPS_UP_OCTETS:
            return self.buffers.output_octets
        return self.buffers.flood_output_octets

    def send_filled(self, count):
        """Send the first ``count`` bytes of the shared output buffer. Bytes that the socket does not take are
        copied and sent later.
        """
        if self.pending and not self.blocked:
            self._send_pending()
        if self.broken:
            return
        view = self.buffers.output_view
        sent = 0
        if not self.pending and self.source is None:
            sent = self._send(view[:count])
            if sent == count:
                self.taken_whole += count
        if sent < count and not self.broken:
            self.pending += view[sent:count]

    def cork(self):
        """Keep all written data until uncork(), so that the answers to one read leave together."""
        self.corked = True

    def uncork(self):
        self.corked = False
        if self.pending and not self.blocked:
            self._send_pending()

    def call_when_drained(self, callback):
        """Call ``callback()`` once all kept bytes are sent, the socket has broken, or at close()."""
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(callback)

    def not_when_drained(self, callback):
        """Withdraw a callback of call_when_drained(). Does nothing if the callback is unknown."""
        if self.waiters is not None and callback in self.waiters:
            self.waiters.remove(callback)

    def pending_octets(self):
        """Return the number of written bytes that the socket has not taken yet."""
        if self.source is None:
            return len(self.pending)
        return len(self.ahead) + self.source.left + len(self.pending)

    def wait_drained(self, timeout_s):
        """Wait until all bytes are sent. Returns False if the time is over or the socket broke. May switch
        greenlets.
        """
        if self.pending_octets() and not self.broken:
            drained = Event()
            self.call_when_drained(drained.set)
            drained.wait(timeout_s)
        return not self.pending_octets() and not self.broken

    def close(self):
        """Drop unsent bytes, and stop watching the socket. The caller then closes the socket."""
        self.broken = True
        self.descriptor = -1  # another socket may have it soon
        self.pending = bytearray()
        self._drop_source()
        self.on_drained = self.on_overflow = self.on_broken = None
        if self.watcher is not None:
            self.watcher.stop()
            self.watcher.close()
            self.watcher = None
        self._tell_waiters()

    def _send(self, view):
        """Send bytes, and return how many the socket took. If it did not take all, the output becomes
        ``blocked`` or ``broken``.
        """
        try:
            sent = receiving.send(self.descriptor, view) if self.descriptor >= 0 else self.send(view)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            if not is_not_now(error):
                self._break(error)
                return 0
            sent = 0
        except Exception:
            LOG.exception("fault while sending: the connection ends")
            self._break(OSError("a fault of the broker"))
            return 0
        self.sent_octets += sent
        if sent < len(view):
            self._watch()
        return sent

    def _send_first(self, data):
        with memoryview(data)[:SEND_OCTETS] as part:
            return self._send(part)

    def _send_pending(self):
        if self.source is not None:
            self._send_kept(self.ahead)
            self._send_source()
        self._send_kept(self.pending)
        if not self.pending:
            self.allowance = 0

    def _send_kept(self, kept):
        while kept and not self.blocked and not self.broken:
            view = memoryview(kept)
            part = view[:SEND_OCTETS]
            sent = self._send(part)
            part.release()
            view.release()
            # CPython moves the start of a bytearray instead of its content.
            del kept[:sent]

    def _send_source(self):
        """Send one part of the source. The next part waits for the event loop's next call."""
        # Even if the socket would take it now.
        if self.blocked or self.broken:
            return
        try:
            self.sent_octets += self.source.send(self.send, self.fileno)
        except OSError as error:
            self._break(error)
            return
        except Exception:
            LOG.exception("fault while sending: the connection ends")
            self._break(OSError("a fault of the broker"))
            return
        if self.source.left:
            self._watch()
        else:
            self._drop_source()

    def _drop_source(self):
        source, self.source, self.ahead = self.source, None, None
        if source is not None:
            source.close()

    def _over_limit(self):
        """Send kept bytes. Calls ``on_overflow()`` if the client does not read and too many are left."""
        if not self.blocked:
            self._send_pending()
        if self.blocked and len(self.pending) > self.limit + self.allowance:
            self.overflowed = True
            if self.on_overflow is not None:
                self.on_overflow()

    def _watch(self):
        self.taken_whole = 0
        if not self.blocked:
            self.blocked = True
            if self.watcher is None:
                self.watcher = gevent.get_hub().loop.io(self.fileno, WRITABLE)
            self.watcher.start(self._writable)

    def _writable(self):
        self.blocked = False
        self._send_pending()
        if self.blocked or self.broken:
            return
        self.watcher.stop()
        self.pending = bytearray()
        self.allowance = 0
        self.overflowed = False
        if self.on_drained is not None:
            self.on_drained()
        self._tell_waiters()

    def _break(self, error):
        self.broken = True
        self.blocked = False
        error.__traceback__ = None  # its frames hold this
        self.error = error
        self.pending = bytearray()
        self._drop_source()
        if self.watcher is not None:
            self.watcher.stop()
        if self.on_broken is not None:
            self.on_broken(error)
        self._tell_waiters()

    def _tell_waiters(self):
        waiters, self.waiters = self.waiters, None
        for waiter in waiters or ():
            try:
                waiter()
            except Exception:  # the other callbacks must be called, too
                LOG.exception("a callback after a socket took all bytes failed")


def send_function(socket):
    """Return the function that sends on this socket without waiting; gevent's own ``send`` may wait."""
    if is_plain(socket):  # a plain gevent socket takes 2 us to look for an attribute it has not
        return socket._sock.send
    if hasattr(socket, "receive_functions"):
        return socket.send
    ssl_object = getattr(socket, "_sslobj", None)
    if ssl_object is not None:
        return ssl_object.write
    return socket._sock.send
