"""HTTP client of links: posts over one connection that is kept alive, one request after the other.

h11 says what the octets mean and does no I/O; sockets are gevent's, and come from ``connect``, which checks
where they lead. Follows no redirects, returns nothing of an answer but its head, and waits for nothing
without a limit of time.
"""
import re
import ssl
from typing import Any, NamedTuple

import gevent
import h11

from gomq_py.client.transport import TLS_ALERT

READ_OCTETS = 16 * 1024
# Of an answer's body. A larger one ends the connection, which costs less than to read it.
ANSWER_OCTETS_MAX = 64 * 1024
# An answer's head; also of chunk headers and trailers.
HEAD_OCTETS_MAX = 32 * 1024
# What a body may take to be sent, besides the time for the answer: a slow line is no dead one.
SLOWEST_OCTETS_PER_S = 64 * 1024
SHOWN_REASON = 60
# How a TLS server answers a ClientHello: with a handshake or an alert, of TLS 1.x or SSL 3.
TLS_ANSWERS = (b"\x16\x03", TLS_ALERT)
HELLO_TIMEOUT_S = 1.0
# What web servers say, in the body of a 400, to plain HTTP where they expect TLS: nginx, Apache, Go's.
PLAIN_TO_TLS = re.compile(
    rb"plain HTTP request was sent to HTTPS port|plain HTTP to an SSL-enabled server port"
    rb"|HTTP request to an HTTPS server", re.IGNORECASE)
# Octets of such a body that are looked at.
BAD_REQUEST, BODY_SHOWN = 400, 2048


class NoAnswer(OSError):
    """The peer did not answer, or not in HTTP. It may have acted on the request all the same."""


class SpeaksTLS(OSError):
    """The port expects TLS, and the URI says http://. Nobody has acted on the request."""

    def __init__(self):
        super().__init__("what answers speaks TLS: the URI begins with https://")


class NoRequest(ValueError):
    """What was given makes no request."""


class Answer(NamedTuple):
    """``headers``: {lower-case name: the first value}. ``asks_for_tls``: it may be what servers say to plain
    HTTP where they expect TLS; who repeats in an answer what was asked may say so, too.
    """

    status: int
    reason: str
    headers: dict[str, str]
    asks_for_tls: bool = False

    def __str__(self) -> str:
        return f"{self.status} {self.reason}".rstrip()


class HTTPConnection:
    """``connect()`` gives a connected socket of gevent's, with TLS where that is wanted; it raises OSError.

    ``timeout_s``: for the answer, from the first octet of the request on; a body's octets give it more.
    ``has_asked``: octets of the last request were sent, or may have been.
    """

    def __init__(self, connect: Any, timeout_s: float):
        self._connect = connect
        self.has_asked = False
        self._timeout_s = timeout_s
        self._socket: Any = None
        self._state: Any = None
        self._is_used = False  # a request was answered over this socket
        self._has_answered = False  # an octet of the answer to this request has come

    def open(self) -> None:
        """Connect, unless it is connected. Raises OSError. May switch."""
        if self._socket is None:
            self._socket = self._connect()
            self._socket.settimeout(None)  # a request has one for all that it does
            self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_OCTETS_MAX)
            self._is_used = False

    def close(self) -> None:
        """Close the socket, whoever uses it, who gets an OSError; once is enough."""
        closing, self._socket = self._socket, None
        if closing is not None:
            closing.close()

    def post(self, target: str, headers: list[tuple[str, bytes]], body: bytes) -> Answer:
        """Send a request and return its answer.

        Raises OSError, NoAnswer and SpeaksTLS among them, and NoRequest. May switch.

        A connection that was kept alive may have ended while nobody looked: then the request is sent again
        over a new one, at once and once.
        """
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
        """Whether what listens there answers the beginning of a TLS handshake, sent over a plain connection
        of its own, as TLS does. May switch.
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
        except ConnectionError:  # it may have answered before it had read all
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
        """Whether another request may follow; makes ready for it."""
        state = self._state
        if self._socket is None or state.our_state is not h11.DONE or state.their_state is not h11.DONE:
            return False
        state.start_next_cycle()
        return not state.trailing_data[0]  # octets that nobody asked for


def _client_hello() -> bytes:
    """How a TLS client begins."""
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
