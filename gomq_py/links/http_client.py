"""HTTP client of links: sends POST requests, one after the other, over one keep-alive connection.

h11 encodes and parses, and does no I/O. The caller's function ``connect`` opens the gevent sockets, and
checks the addresses. Redirects are not followed, bodies of responses are dropped, and every wait has a time
limit.
"""
import re
import ssl
from typing import Any, NamedTuple

import gevent
import h11

from gomq_py.client.transport import TLS_ALERT

READ_OCTETS = 16 * 1024
# Largest body of an answer. A larger one closes the connection, which is cheaper than reading it.
ANSWER_OCTETS_MAX = 64 * 1024
# Most octets of an answer's head, and of a chunk header or trailer.
HEAD_OCTETS_MAX = 32 * 1024
# Extra time for sending a body: a slow line is not a dead one.
SLOWEST_OCTETS_PER_S = 64 * 1024
SHOWN_REASON = 60
# First bytes of a TLS server's answer to a ClientHello: a handshake or an alert, of TLS 1.x or SSL 3.
TLS_ANSWERS = (b"\x16\x03", TLS_ALERT)
HELLO_TIMEOUT_S = 1.0
# Text of a 400 that web servers send to plain HTTP on a TLS port: nginx, Apache, Go's.
PLAIN_TO_TLS = re.compile(
    rb"plain HTTP request was sent to HTTPS port|plain HTTP to an SSL-enabled server port"
    rb"|HTTP request to an HTTPS server", re.IGNORECASE)
# BODY_SHOWN: bytes of a 400's body that are searched.
BAD_REQUEST, BODY_SHOWN = 400, 2048


class NoAnswer(OSError):
    """The server has sent no valid HTTP response in time. It may have carried out the request."""


class SpeaksTLS(OSError):
    """The port expects TLS, but the URI says http://. The request was not carried out."""

    def __init__(self):
        super().__init__("what answers speaks TLS: the URI begins with https://")


class NoRequest(ValueError):
    """The arguments of ``post`` do not make a valid HTTP request."""


class Answer(NamedTuple):
    """An HTTP response. ``headers``: {lower-case name: first value}. ``asks_for_tls``: the response looks
    like that of a TLS port to plain HTTP. A server that echoes requests may send such a response, too.
    """

    status: int
    reason: str
    headers: dict[str, str]
    asks_for_tls: bool = False

    def __str__(self) -> str:
        return f"{self.status} {self.reason}".rstrip()


class HTTPConnection:
    """Sends POST requests over one connection, which is kept alive and reopened when needed.

    ``connect()`` returns a connected gevent socket, with TLS if needed, or raises OSError. ``timeout_s``:
    time limit for a request and its response, without connecting; large bodies get more time. ``has_asked``:
    True if bytes of the last request may have been sent.
    """

    def __init__(self, connect: Any, timeout_s: float):
        self._connect = connect
        self.has_asked = False
        self._timeout_s = timeout_s
        self._socket: Any = None
        self._state: Any = None
        self._is_used = False  # a request was answered over this socket
        self._has_answered = False  # the first byte of the answer has arrived

    def open(self) -> None:
        """Connect, unless connected. Raises OSError. May switch greenlets."""
        if self._socket is None:
            self._socket = self._connect()
            self._socket.settimeout(None)  # each request sets its own timeout for all its steps
            self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_OCTETS_MAX)
            self._is_used = False

    def close(self) -> None:
        """Close the socket. A request in progress then raises OSError. May be called again."""
        closing, self._socket = self._socket, None
        if closing is not None:
            closing.close()

    def post(self, target: str, headers: list[tuple[str, bytes]], body: bytes) -> Answer:
        """Send a POST request and return the response. Raises OSError, NoRequest. May switch greenlets.

        ``target``: path and query. ``headers``: all header fields, with Host and Content-Length.
        """
        # If an idle keep-alive connection turns out to be closed, the request is sent over a new connection,
        # at once and only once more.
        was_used = self._socket is not None and self._is_used
        self.has_asked = False
        try:
            return self._exchange(target, headers, body)
        except ConnectionError:
            if not was_used or self._has_answered:
                raise
            self.has_asked = False
            return self._exchange(target, headers, body)

    def expects_tls(self) -> bool:
        """True if the port answers a TLS ClientHello, sent over a separate connection, with TLS. May switch
        greenlets.
        """
        try:
            connected = self._connect()
        except OSError:
            return False
        try:
            said = b""
            with gevent.Timeout(HELLO_TIMEOUT_S, False):
                connected.sendall(_client_hello())
                said = connected.recv(READ_OCTETS)
            return said.startswith(TLS_ANSWERS)
        except OSError:
            return False
        finally:
            connected.close()

    def _exchange(self, target: str, headers: list[tuple[str, bytes]], body: bytes) -> Answer:
        timeout_s = self._timeout_s + len(body) / SLOWEST_OCTETS_PER_S
        self.open()
        answer = None
        try:
            with gevent.Timeout(timeout_s, False):
                answer = self._exchange_in_time(self._socket, self._state, target, headers, body)
            if answer is None:
                raise NoAnswer(f"no answer within {timeout_s:.0f} s")
            return answer
        except h11.RemoteProtocolError as error:
            raise NoAnswer(f"what answers does not speak HTTP: {error}") from None
        except h11.LocalProtocolError as error:
            raise NoRequest(str(error)) from None
        finally:
            if answer is None or not self._is_kept_alive():
                self.close()
            self._is_used = True

    def _exchange_in_time(
        self, connected: Any, state: Any, target: str, headers: list[tuple[str, bytes]], body: bytes,
    ) -> Answer:
        self._has_answered = False
        fields = [(name.encode(), value) for name, value in headers]
        request = state.send(h11.Request(method="POST", target=target, headers=fields))
        parts = [request, *(state.send_with_data_passthrough(h11.Data(data=body)) or ())]
        parts.append(state.send(h11.EndOfMessage()) or b"")
        if len(body) < READ_OCTETS:
            parts = [b"".join(parts)]  # in one segment
        self.has_asked = True
        try:
            for part in parts:
                connected.sendall(part)
        except ConnectionError:  # the server may answer before it has read the whole request
            try:
                return self._answer(connected, state)
            except (OSError, h11.RemoteProtocolError):
                pass
            raise
        return self._answer(connected, state)

    def _answer(self, connected: Any, state: Any) -> Answer:
        answer, octets, shown = None, 0, b""
        try:
            while octets <= ANSWER_OCTETS_MAX:
                event = state.next_event()
                if event is h11.NEED_DATA:
                    data = connected.recv(READ_OCTETS)
                    if not data and not self._has_answered:
                        raise ConnectionResetError("the connection ended before the answer")
                    if not self._has_answered and data.startswith(TLS_ALERT):
                        raise SpeaksTLS
                    self._has_answered = True
                    state.receive_data(data)
                elif isinstance(event, h11.Response):
                    answer = Answer(event.status_code, _shown(event.reason), _first_values(event.headers))
                elif isinstance(event, h11.Data):
                    octets += len(event.data)
                    shown += event.data[:max(0, BODY_SHOWN - len(shown))]
                elif not isinstance(event, h11.InformationalResponse):
                    break
        except (ConnectionError, h11.RemoteProtocolError):
            if answer is None:
                raise
        if answer is None:
            raise NoAnswer("the connection ended before the answer")
        if answer.status == BAD_REQUEST and PLAIN_TO_TLS.search(shown):
            return answer._replace(asks_for_tls=True)
        return answer

    def _is_kept_alive(self) -> bool:
        """Prepare the connection for another request. Returns False if it cannot be used again."""
        state = self._state
        if self._socket is None or state.our_state is not h11.DONE or state.their_state is not h11.DONE:
            return False
        state.start_next_cycle()
        return not state.trailing_data[0]  # bytes beyond the answer


def _client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def _shown(reason: bytes) -> str:
    text = reason.decode("ascii", "replace")[:SHOWN_REASON]
    return "".join(character if character.isprintable() else "?" for character in text)


def _first_values(headers: Any) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in headers:
        values.setdefault(name.decode("ascii"), value.decode("latin-1"))
    return values
