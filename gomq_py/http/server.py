"""The management servers: gevent.pywsgi in the broker's own event loop, over TCP, TLS or a unix socket.

Each request runs in one greenlet and builds its answer in slices (``answers``). There are limits for
connections (``clients``), for the bytes of a head and of a refused body, for a client's time in each step,
and for requests per connection. The module knows no route.
"""
import contextlib
import io
import select
import struct
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote_to_bytes

from gevent import monkey, socket
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from gomq_py.http.clients import Clients
from gomq_py.http import heads
from gomq_py.http.followers import Followers
from gomq_py.http.heads import BodyLost
from gomq_py.http.upgrades import UpgradeRefused
from gomq_py.hub.turns import PacedTurns, give_way
from gomq_py.net.listener import abandon_socket, format_address, host_of
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("http")
# gevent's poll ignores that the peer has closed its side.
_poll = monkey.get_original("select", "poll")
# Octets of a client's read buffer. Python 3.14 would take 128 KiB, of each idle client, too, and a head over
# its limit at once.
BUFFER_OCTETS = 8192
# Octets read at a time from a discarded body.
PIECE_OCTETS = 16384
# Most octets written between two checks of the clock; a socket takes what it has room for. Pieces of 16 KiB,
# each written as a whole, cost a stream's segments half as much again.
SENT_OCTETS = 262144
REFUSALS = {408: "Request Timeout", 431: "Request Header Fields Too Large"}


class _LogSink:
    """Logs pywsgi's lines at debug level, because they report no bugs of the broker."""

    @staticmethod
    def write(line):
        LOG.debug("%s", line.rstrip())

    @staticmethod
    def flush():
        """Do nothing, because no line is buffered."""


class _HeadRefused(ValueError):
    """A request's head is refused with the HTTP ``status``; without an answer if that is None."""

    def __init__(self, status=None):
        super().__init__(status)
        self.status = status


class _Incoming(io.RawIOBase):
    """Receives from a client, for a buffered reader; limits each part of a request in bytes and time."""

    def __init__(self, client, clients, settings):
        self._client = client
        self._clients = clients
        self._settings = settings
        self._octets = 0
        self._step = _Incoming._idle
        self._handed_over = False
        self.ended = False
        """Whether the client has said that it sends no more."""

    def readable(self):
        return True

    @property
    def connection(self):
        return self._client.connection

    def expect_head(self, first):
        """Set the next request's time limit: the request timeout for the first one, else the idle timeout."""
        self._octets, self._step = 0, _Incoming._idle
        self._clients.allow(
            self._client, self._settings.http_request_timeout if first else self._settings.http_idle_timeout
        )

    def expect_body(self):
        """Record that the head is complete. The body's time limit starts at the first read."""
        self._step = None

    def readinto(self, buffer):
        """Receive bytes into ``buffer``; return their number, 0 at the end. Raises _HeadRefused, BodyLost,
        OSError. May switch greenlets.
        """
        if self._handed_over:
            return 0
        if self._step is None:
            self._step = _Incoming._body
            self._clients.allow(self._client, self._settings.http_request_timeout)
        with self._clients.waiting(self._client):
            count = self._client.connection.recv_into(buffer)
        self.ended = self.ended or not count
        self._step(self, count)
        return count

    def hand_over(self):
        """Let further reads return only bytes already received. The caller owns the socket from now on."""
        self._handed_over = True

    def _idle(self, count):
        if self._client.late:
            raise OSError("no request in time")
        if count:
            self._clients.allow(self._client, self._settings.http_request_timeout)
            self._step = _Incoming._head
            self._head(count)

    def _head(self, count):
        self._octets += count
        if self._client.late:
            raise _HeadRefused(408)
        if self._octets > self._settings.http_max_octets_before_login:
            raise _HeadRefused(431)

    def _body(self, count):
        if self._client.late:
            raise BodyLost(408, "the body did not come in time ([mgmt] request_timeout)")
        if not count:
            raise BodyLost(400, "the body ended before it was whole")
        self._clients.took(self._client, count)


class _Outgoing:
    """A client's socket for pywsgi, with a time limit for each write."""

    def __init__(self, client, clients, settings):
        self._client = client
        self._clients = clients
        self._settings = settings
        self._connection = client.connection

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def sendall(self, octets):
        """Send all bytes. Raises OSError if the client does not read in time. May switch greenlets."""
        view = memoryview(octets)
        at = 0
        while at < len(view):
            self._clients.allow(self._client, self._settings.http_request_timeout)
            with self._clients.waiting(self._client, writing=True):
                at += self._connection.send(view[at:at + SENT_OCTETS])


class _Body:
    """A WSGI request's body. Bytes left unread are discarded; if too many, the connection is closed."""

    def __init__(self, handler, asked, most):
        """``asked`` is pywsgi's Input, which sends a 100-continue. At most ``most`` bytes are discarded."""
        self._handler = handler
        self._asked = asked
        before = asked._send_100_continue
        self._body = asked
        if asked.chunked_input:
            self._body = io.BufferedReader(heads.Chunks(handler.rfile, before), BUFFER_OCTETS)
        self._most = most
        self._lost = False

    def read(self, size=-1):
        """Return up to ``size`` bytes of the body; -1 means all. Raises BodyLost. May switch greenlets."""
        return self._taken(self._body.read, size)

    def readline(self, size=-1):
        """Return the next line of the body. Raises BodyLost. May switch greenlets."""
        return self._taken(self._body.readline, size)

    def __iter__(self):
        return iter(self.readline, b"")

    def _taken(self, method, size):
        self._lost = True  # until the read returns: a stopping broker interrupts it anywhere
        try:
            taken = method(size)
        except BodyLost:
            raise
        except OSError:
            raise BodyLost(400, "the body is not in well-formed chunks") from None
        self._lost = False
        return taken

    def _discard(self):
        """Discard the bytes that the app has not read. Called by pywsgi. May switch greenlets."""
        handler = self._handler
        # A client that got no 100-continue may not send the body at all.
        unasked = (
            handler.headers.get("Expect", "").lower() == "100-continue" and self._asked.socket is not None
        )
        if self._lost or unasked:
            handler.close_connection = True
        left = self._most
        with contextlib.suppress(BodyLost):
            while left > 0 and not handler.close_connection:
                octets = self.read(min(left, PIECE_OCTETS))
                if not octets:
                    return
                left -= len(octets)
        handler.close_connection = True


class ManagementHandler(WSGIHandler):
    """Serves one HTTP connection. %2F in a path stays encoded, so that a name may contain a slash."""

    def __init__(self, client, clients, settings, address, server, upgrades=None):
        """``upgrades`` turns connections into WebSockets; with None this port has no WebSockets."""
        self._settings = settings
        self._upgrades = upgrades
        self.upgraded = None
        """Once the connection is no longer HTTP's: a function that serves it."""
        self._incoming = _Incoming(client, clients, settings)
        self._requests = 0
        super().__init__(
            _Outgoing(client, clients, settings), address, server,
            rfile=io.BufferedReader(self._incoming, BUFFER_OCTETS))

    def handle(self):
        """Serve the client until it disconnects or gets a WebSocket. May switch greenlets."""
        try:
            super().handle()
        finally:
            self.environ = None  # breaks a reference cycle: the body holds its handler
            self.__dict__.pop("wsgi_input", None)

    def handle_one_request(self):
        self._incoming.expect_head(first=not self._requests)
        self._requests += 1
        return super().handle_one_request()

    def MessageClass(self, *args):
        """Read, check and return a request's header fields, for pywsgi. Raises MalformedHead, HTTPException.
        May switch greenlets.
        """
        fields = super().MessageClass(io.BytesIO(heads.read_fields(args[0])), *args[1:])
        heads.check_framing(fields, self.request_version)
        return fields

    def _connection_upgrade_requested(self):
        """Return False: otherwise pywsgi would pass the socket as body. ``handle_one_response`` upgrades."""
        return False

    def handle_one_response(self):
        """Answer one request. The WSGI app answers all requests but those for a WebSocket. May switch
        greenlets.
        """
        if self._upgrades is not None and self._upgrades.is_asked_for(self.command, self.headers):
            try:
                accepted = self._upgrades.answer(
                    self.path, self.headers, self.request_version, host_of(self.client_address))
            except UpgradeRefused as refused:
                self.close_connection = True  # frames may follow already
                self.application = refused.application
            else:
                self._upgrade(accepted)
                return
        super().handle_one_response()

    def _upgrade(self, accepted):
        """Send the answer 101, after which AMQP or MQTT owns the socket. May switch greenlets."""
        self._incoming.hand_over()
        rest = self.rfile.read()
        self.socket.sendall(accepted.octets)
        self.socket: Any = None  # otherwise pywsgi would close it
        self.close_connection = True
        self.upgraded = partial(
            self._upgrades.begin, accepted, self._incoming.connection, self.client_address, rest
        )

    def read_request(self, raw_requestline):
        if self._incoming.ended:
            raise _HeadRefused
        heads.check_request_line(raw_requestline.encode("latin-1"))
        whole = super().read_request(raw_requestline)
        if self._incoming.ended:
            raise _HeadRefused  # the library accepts a truncated head
        host, target = heads.origin_form(self.path)
        self.path: Any = target
        if host is not None:
            del self.headers["Host"]
            self.headers["Host"] = host
        if self._requests >= self._settings.http_max_requests_per_connection:
            self.close_connection = True
        self._incoming.expect_body()
        give_way()  # the first request of many, too, begins after a poll
        self.server.turns.wait()
        return whole

    def get_environ(self):
        environ = super().get_environ()
        environ["PATH_INFO"] = path_info(self.path)
        environ["gomq.followers"] = self.server.followers
        environ["gomq.is_gone"] = partial(_has_gone, self.socket)
        environ["gomq.peer"] = partial(_peer, self.socket, self.client_address)
        self.wsgi_input: Any = _Body(self, environ["wsgi.input"], self._settings.http_max_octets_before_login)
        environ["wsgi.input"] = self.wsgi_input
        return environ

    def start_response(self, status, headers, exc_info=None):
        if self.close_connection and self.request_version == "HTTP/1.1":
            headers = [*headers, ("Connection", "close")]
        return super().start_response(status, headers, exc_info)

    def _handle_client_error(self, ex):
        status = ex.status if isinstance(ex, _HeadRefused) else 431 if isinstance(ex, HTTPException) else 400
        if isinstance(ex, _HeadRefused) and status is None or isinstance(ex, OSError):
            return None
        if status == 400:
            return super()._handle_client_error(ex)
        line = f"HTTP/1.1 {status} {REFUSALS[status]}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        return str(status), line.encode()

    def log_request(self):
        """Log nothing: a request may contain names, and a dashboard makes thousands of requests."""


def _peer(client, address):
    """Return a client's name for the audit log: its address or, for a unix socket, its user id."""
    if isinstance(address, tuple):
        return format_address(address)
    _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return f"uid {user}"


def _has_gone(client):
    """Return whether the client has closed its side, even if some of its bytes are unread."""
    poll = _poll()
    poll.register(client.fileno(), getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


def path_info(raw):
    """Return WSGI's PATH_INFO of a raw request path.

    ``%2F`` and ``%25`` stay encoded, so that a name may contain a slash.

    >>> path_info("/api/queues/%2F/a%20b?x=1")
    '/api/queues/%2F/a b'
    """
    path = raw.partition("?")[0]
    kept = path.replace("%2f", "%2F").replace("%25", "%2525").replace("%2F", "%252F")
    return unquote_to_bytes(kept).decode("latin-1")


class _Server(WSGIServer):
    """pywsgi's server. Its Clients limits who may connect, and is told when a client has left."""

    # One accept per poll of the loop: many simultaneous clients delay no other work, and no client is closed
    # for a connection that does not exist.
    max_accept = 1

    def __init__(self, listening, app, tls, settings, upgrades, forward):
        options = {"ssl_context": tls} if tls is not None else {}
        super().__init__(listening, app, log=_LogSink, error_log=_LogSink, spawn=Pool(), **options)
        self.full = self._is_full
        self._settings = settings
        self._tls = tls
        self._upgrades = upgrades
        self._forward = forward
        self._strangers = QuietLog(LOG)
        self.clients = Clients(settings, self._start_accepting_if_started)
        self.turns = PacedTurns()  # or a client that asks without pause would keep the loop from sockets
        self.followers = Followers(settings)

    def update_environ(self):
        # Nothing reads it, and pywsgi would have the start wait for a name server.
        self.environ["SERVER_NAME"] = "localhost"
        super().update_environ()

    def _is_full(self):
        return not self.clients.has_room()

    def do_handle(self, connection, address):
        client = self.clients.enter(connection, host_of(address))
        if client is None:
            connection.close()
        else:
            self.pool.spawn(self._serve, client, address)

    def adopt(self, family, descriptor, address):
        connection = socket.socket(family, socket.SOCK_STREAM, 0, fileno=descriptor)
        if self.started:
            self.do_handle(connection, address)
        else:
            connection.close()

    def _is_own(self, client):
        """Return whether a client's first request is for this node. Raises OSError. May switch greenlets."""
        self.clients.allow(client, self._settings.http_request_timeout)
        with self.clients.waiting(client):
            is_own = self._forward.is_own(client.connection)
        if client.late:
            raise OSError("no request in time")
        return is_own

    def _serve(self, client, address):
        upgraded = None
        try:
            if self._forward is not None and not self._is_own(client):
                self._forward.until_end(client.connection, address)
                return
            if self._tls is not None:
                client.connection = self._tls.wrap_socket(client.connection, server_side=True)
            handler = ManagementHandler(client, self.clients, self._settings, address, self, self._upgrades)
            handler.handle()
            upgraded = handler.upgraded
        except OSError as error:
            self._strangers.info(
                ("lost", client.host), "connection from %s lost: %s", format_address(address),
                error.strerror or error)
        finally:
            if upgraded is None:
                client.connection.close()
            self.clients.leave(client)
        if upgraded is not None:
            upgraded()

    def stop(self, timeout=None):
        self.followers.close()
        super().stop(timeout)
        self.clients.close()


class ManagementServer:
    """Serves one WSGI app on one listening socket, with limits of connections and time."""

    def __init__(self, listening, app, settings, tls=None, upgrades=None, forward=None):
        """``listening`` is a bound socket in the listening state.

        ``tls`` is an ssl.SSLContext, any object with its method ``wrap_socket``, or None. ``upgrades`` turns
        connections into WebSockets, or is None.

        ``forward``, or None, passes clients on to another node. ``forward.is_own(connection)`` waits for a
        client's first bytes, and returns whether this node must serve the client. If not,
        ``forward.until_end(connection, address)`` passes the client on.
        """
        self._server = _Server(listening, app, tls, settings, upgrades, forward)
        self.address = listening.getsockname()

    @property
    def count(self):
        return self._server.clients.count

    def start(self):
        self._server.start()

    def has_room(self):
        """Return whether a client that another node has accepted can be served. True before ``start()``."""
        return not self._server.started or not self._server.full()

    def adopt(self, family, descriptor, address):
        """Serve a client that another node has accepted. ``descriptor`` is the socket's file descriptor,
        ``family`` its address family. If this server is not started, the connection is closed.
        """
        self._server.adopt(family, descriptor, address)

    def abandon(self):
        """In a forked child: close the child's copy of the socket. The parent goes on accepting."""
        abandon_socket(self._server.socket)

    def close(self):
        """Stop accepting. Running requests have a second to end. May switch greenlets."""
        self._server.stop(timeout=1)
