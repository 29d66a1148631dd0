"""Connection: HTTP/1.1 with one etcd server, over one socket that is kept for further requests.

h11 parses and does no I/O. Nothing is sent twice here. Callers limit the time of whole requests.
"""
import select
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import gevent
import h11
from gevent import monkey

from gomq_py.hub.turns import give_way
from gomq_py.net import connecting

_poll = monkey.get_original("select", "poll")

READ_OCTETS = 16 * 1024
# Most octets of an answer with its head, and of a line of a watch. A cluster of 64 nodes has 100 KiB of keys;
# the largest value that etcd takes by default has 2 MiB in base64, and stops nobody.
MOST_OCTETS = 4 * 1024 * 1024
# A server that is cut off from the others refuses a request with this header at once, and ends a watch.
HAS_LEADER = ("grpc-metadata-hasleader", "true")
OK = 200
# Shown part of h11's error texts, which quote all that a server has sent.
TEXT_SHOWN = 100

_LATE = object()
Result = TypeVar("Result")


class Endpoint(NamedTuple):
    """Address at which an etcd server listens for clients."""

    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """The text "host:port" for a URL, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NoAnswer(OSError):
    """The server gave no whole HTTP answer."""


class Failure(Exception):
    """A call to a server has failed.

    ``is_open``: the server may have carried out the request, or may do so later. ``is_late``: the time limit
    was reached.
    """

    def __init__(self, endpoint: Endpoint, error: Exception, is_open: bool):
        super().__init__(f"{endpoint}: {_told(error)}")
        self.is_open = is_open
        self.is_late = isinstance(error, TimeoutError)


def _told(error: Exception) -> str:
    untrusted = getattr(error, "verify_message", "")  # of an ssl.SSLError, whose module may not be loaded
    if untrusted:
        return (
            f"its certificate is not accepted: {untrusted} (see etcd_tls_ca_cert of [clustering], and the "
            "name in etcd_endpoints)")
    if hasattr(error, "library"):
        reason = str(getattr(error, "reason", "")).replace("_", " ").lower()
        return (
            f"no TLS connection: {reason} (see etcd_tls_cert of [clustering]; https:// is for servers with "
            "TLS)")
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def within(seconds: float, function: Callable[..., Result], *arguments: Any) -> Result:
    """Return ``function(*arguments)``. Raises TimeoutError after ``seconds``. May switch greenlets."""
    # Inside of ``function`` the limit is not raised as an OSError, which might be taken for a network fault
    # and be handled there.
    result = gevent.with_timeout(max(0.0, seconds), function, *arguments, timeout_value=_LATE)
    if result is _LATE:
        raise TimeoutError(f"no answer within {max(0.0, seconds):.1f} s")
    return result


class Connection:
    """An HTTP connection to ``endpoint``, made by the constructor.

    ``addresses``: results of getaddrinfo, each tried for its share of ``timeout_s``. ``tls``: a client's
    ``gevent.ssl.SSLContext``, for https. The constructor raises OSError, and may switch greenlets; if its
    greenlet is killed then, no socket stays open.
    """

    def __init__(self, endpoint: Endpoint, addresses: list[Any], tls: Any, timeout_s: float):
        self.endpoint = endpoint
        self._state: Any = h11.Connection(h11.CLIENT)
        self._received = 0
        self._socket = connecting.connect(endpoint.host, addresses, timeout_s)
        try:
            if endpoint.is_tls:
                self._socket = tls.wrap_socket(
                    self._socket, server_hostname=endpoint.host, do_handshake_on_connect=False)
                self._socket.do_handshake()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket. May be called again."""
        self._socket.close()

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        """Send a request with a JSON body. Returns (HTTP status, body). May switch greenlets.

        Raises OSError.
        """
        status = self._begin(path, body, token)
        return status, b"".join(iter(self._body, None))

    def stream(self, path: str, body: bytes, token: str, silence_s: float) -> Iterator[bytes]:
        """Send a request, and yield the lines of its endless answer as they come. May switch greenlets.

        Yields b"" after each ``silence_s`` seconds without a line. Raises OSError, also at the stream's end.
        """
        status = self._begin(path, body, token)
        self._socket.settimeout(silence_s)
        begun: bytes = b""
        while True:
            try:
                received = self._body()
            except TimeoutError:
                yield b""
                continue
            if received is None:
                if begun:  # an error's line may have no end
                    yield begun
                raise NoAnswer(f"the stream has ended (HTTP status {status})")
            *lines, begun = (begun + received).split(b"\n")
            self._received = len(begun)
            yield from lines or (b"",)

    def is_reusable(self) -> bool:
        """Return whether another request may be sent over this connection."""
        # The last answer is whole, and the server has neither closed the connection nor said anything since.
        state = self._state
        if state.our_state is h11.DONE and state.their_state is h11.DONE:
            state.start_next_cycle()
        if state.our_state is not h11.IDLE or state.trailing_data[0]:
            return False
        watched = _poll()
        watched.register(self._socket.fileno(), select.POLLIN)
        return not watched.poll(0)

    # helpers

    def _begin(self, path: str, body: bytes, token: str) -> int:
        headers = [
            ("host", self.endpoint.authority), ("content-type", "application/json"),
            ("content-length", str(len(body))), HAS_LEADER,
        ]
        if token:
            headers.append(("authorization", token))
        state = self._state
        octets = state.send(h11.Request(method="POST", target=path, headers=headers))
        octets += state.send(h11.Data(data=body)) + state.send(h11.EndOfMessage())
        self._received = 0
        self._socket.sendall(octets)
        while not isinstance(event := self._event(), h11.Response):
            if event is h11.NEED_DATA:
                self._receive()
        return int(event.status_code)

    def _body(self) -> bytes | None:
        """Return the next received bytes of the body; None at the body's end. May switch greenlets."""
        parts: list[bytes] = []
        while self._state.their_state is h11.SEND_BODY:
            event = self._event()
            if isinstance(event, h11.Data):
                parts.append(event.data)
            elif event is h11.NEED_DATA:
                if parts:
                    break
                self._receive()
        return b"".join(parts) if parts else None

    def _event(self) -> Any:
        try:
            event = self._state.next_event()
        except h11.RemoteProtocolError as error:
            raise NoAnswer(f"no whole HTTP answer: {str(error)[:TEXT_SHOWN]}") from None
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise NoAnswer("the connection ended before the answer")
        return event

    def _receive(self) -> None:
        if self._received > MOST_OCTETS:
            raise NoAnswer(f"the answer has more than {MOST_OCTETS} bytes")
        if self._received:
            give_way()  # so that a long answer does not hold up the hub, and its time limit can end it
        octets = self._socket.recv(READ_OCTETS)
        if not octets and not self._received:
            raise NoAnswer("it has ended the connection without an answer, as one with TLS does for http://")
        self._received += len(octets)
        self._state.receive_data(octets)
