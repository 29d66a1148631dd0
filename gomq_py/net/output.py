"""Output: everything that goes to one socket.

Nobody waits here (docs/decisions/0003, design "nobody waits on somebody's socket").

Above the socket, below doors and their deliveries. What the socket does not take at once is kept, and sent
when the loop says that the socket is writable again. Deliveries stop while it is ``blocked``; replies go on
into the kept octets up to ``limit``, then ``on_overflow`` is told, whose business it is to stop reading from
that client. Never raises for the socket's sake: a broken one swallows what it is given and tells
``on_broken`` once. What lies in a file is sent from there, by a Source.
"""
import os
import socket as system_socket

import gevent
from gevent.event import Event

from gomq_py.hub.buffers import FLOOD_OUTPUT_OCTETS
from gomq_py.hub.loop_socket import is_plain
from gomq_py.net.receiving import is_not_now
from gomq_py.observability.log import logger

LOG = logger("net")

# Replies a client may leave unread before it is no longer read from: a few ten thousand confirms or
# declare-oks.
LIMIT_OCTETS = 1024 * 1024
# Most octets handed to one send(): larger ones are cut by the socket buffer anyway. TLS wants what it could
# not take again, and no less of it, so that this is no less than what is ever filled at a time.
SEND_OCTETS = FLOOD_OUTPUT_OCTETS
# Who has taken so many octets of deliveries, and never less at a time than it was given, keeps up.
KEEPS_UP_OCTETS = 1024 * 1024
WRITABLE = 2
CAN_SEND_FILES = hasattr(os, "sendfile") and hasattr(system_socket, "MSG_MORE")


class Output:
    """The one way to write to ``socket`` (a gevent socket, plain or TLS, non-blocking).

    ``blocked``: the socket took less than it was given; deliveries wait for ``call_when_drained``.
    ``sent_octets`` counts what the socket took. ``takes_sources``: see write_source(). ``account``: whose it
    is for what clients share (hub.budget), the names of user and virtual host, from the login on.
    """

    __slots__ = (
        "buffers", "sent_octets", "blocked", "broken", "error", "on_drained", "on_overflow", "on_broken",
        "limit", "allowance", "corked", "overflowed", "send", "fileno", "watcher", "pending", "waiters",
        "takes_sources", "source", "ahead", "taken_whole", "account",
    )

    def __init__(self, socket, buffers, limit=LIMIT_OCTETS):
        self.buffers = buffers
        self.send = send_function(socket)
        self.takes_sources = CAN_SEND_FILES and is_plain(socket)
        self.fileno = socket.fileno()
        self.limit = limit
        self.account = None
        self.sent_octets = self.allowance = self.taken_whole = 0
        self.blocked = self.broken = self.corked = self.overflowed = False
        self.error = self.on_drained = self.on_overflow = self.on_broken = self.watcher = None
        self.pending = bytearray()
        self.waiters = None
        self.source = None  # while there is one, it is sent before what is pending
        self.ahead = None  # what was pending when it came, and is sent before it

    def write(self, data):
        """Send ``data`` (bytes or a bytearray the caller gives away) behind everything written before."""
        if self.broken:
            return
        if self.corked or self.pending or self.source is not None:
            self.pending += data
            if not self.corked and not self.blocked:
                self._flush()
        else:
            sent = self._send(data) if len(data) <= SEND_OCTETS else self._send_first(data)
            if sent < len(data) and not self.broken:
                if isinstance(data, bytearray):
                    del data[:sent]
                    self.pending = data
                else:
                    self.pending = bytearray(memoryview(data)[sent:])
                if not self.blocked:
                    self._flush()
        if len(self.pending) > self.limit + self.allowance and not self.overflowed:
            self._over_limit()

    def write_large(self, data):
        """As write, for a message that may be larger than ``limit``: it does not count until it is sent."""
        self.allowance += len(data)
        self.write(data)
        if not self.pending:
            self.allowance = 0

    def write_source(self, source):
        """Send all that ``source`` gives behind everything written before. Only where ``takes_sources``, and
        not while ``blocked``.

        A Source has ``send(send, fileno) -> octets``, which gives the socket what it takes, and no more than
        others can wait for, ``left``, how many octets are still to come, and ``close()``, called once when
        these are 0 or nobody wants them any more. It raises OSError where the connection has to end.
        """
        if self.pending and not self.blocked:
            self._flush()
        if self.broken:
            source.close()
            return
        self.source = source
        self.ahead, self.pending = self.pending, bytearray()
        if not self.blocked:
            self._flush()

    def room_to_fill(self):
        """How much of the hub's output buffer may be filled at a time: little, until the peer keeps up."""
        if self.taken_whole < KEEPS_UP_OCTETS:
            return self.buffers.output_octets
        return self.buffers.flood_output_octets

    def send_filled(self, count):
        """Send the first ``count`` octets of the hub's output buffer; what the socket does not take is copied
        out of it.
        """
        if self.pending and not self.blocked:
            self._flush()
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
        """Gather what is written from now on: a read is being walked and its answers leave together."""
        self.corked = True

    def uncork(self):
        """Send what was gathered."""
        self.corked = False
        if self.pending and not self.blocked:
            self._flush()

    def call_when_drained(self, callback):
        """Call ``callback()`` once when everything kept has been sent, or never will be because the socket
        broke.
        """
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(callback)

    def not_when_drained(self, callback):
        """Do not call it. One that is not to be called anyway changes nothing."""
        if self.waiters is not None and callback in self.waiters:
            self.waiters.remove(callback)

    def pending_octets(self):
        """Octets accepted but not yet taken by the socket."""
        if self.source is None:
            return len(self.pending)
        return len(self.ahead) + self.source.left + len(self.pending)

    def wait_drained(self, timeout_s):
        """Wait until nothing is pending or the socket broke. Returns whether all was sent. May switch."""
        if self.pending_octets() and not self.broken:
            drained = Event()
            self.call_when_drained(drained.set)
            drained.wait(timeout_s)
        return not self.pending_octets() and not self.broken

    def close(self):
        """Drop what is pending and stop watching the socket; the caller closes the socket afterwards."""
        self.broken = True
        self.pending = bytearray()
        self._drop_source()
        self.on_drained = self.on_overflow = self.on_broken = None
        if self.watcher is not None:
            self.watcher.stop()
            self.watcher.close()
            self.watcher = None
        self._tell_waiters()

    def _send(self, view):
        """Octets the socket took. Fewer than given: now blocked (or broken) and watched."""
        try:
            sent = self.send(view)
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

    def _flush(self):
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
        """Send some of the source, if it is its turn. What it has left waits for the loop, even where the
        socket would take more.
        """
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
        """More is kept than should be.

        What was only gathered goes out; if the socket does not take it, the client does not read.
        """
        if not self.blocked:
            self._flush()
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
        self._flush()
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
        if error is not None:
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
            except Exception:  # the others wait for nobody but us
                LOG.exception("what waited for a socket to take its octets cannot go on")


def send_function(socket):
    """The non-blocking send of a gevent socket: its own would wait for the loop. What is like a socket
    (net.websocket) has one that does not.
    """
    if is_plain(socket):  # one of gevent's takes 2 us to say what it has not
        return socket._sock.send
    if hasattr(socket, "receive_functions"):
        return socket.send
    ssl_object = getattr(socket, "_sslobj", None)
    if ssl_object is not None:
        return ssl_object.write
    return socket._sock.send
