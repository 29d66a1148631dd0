"""Stream: the code that the client's AMQP and MQTT connections share.

Writes whole frames or packets, reads bytes, waits for answers, sends heartbeats, and ends the connection.
Nothing runs in the background: bytes are read while the caller waits in a call. While a write waits for the
socket, input is read, so that two peers that both write do not deadlock.
"""
import time
from collections.abc import Callable
from typing import Any, NoReturn, Self

from gomq_py.client.errors import ConnectionClosed, Timeout
from gomq_py.client.transport import Transport

DEFAULT_TIMEOUT_S = 30  # the answer to something durable waits for the disk, which may be busy
_CORKED_OCTETS = 65536  # written at this size: a small share of a socket's buffer
_READ_OCTETS = 65536
# Most bytes from an untrusted peer while one answer is awaited; the largest answer of any broker is a frame.
# They are read in small parts, because a frame may have 8 bytes and others run between two parts.
_WARY_OCTETS = 256 * 1024
_WARY_READ_OCTETS = 4096


class Stream:
    """Base class of a client's connection. The constructor connects. A subclass implements the protocol.

    ``timeout_s`` limits each wait for an answer, and overrides the URL's option connection_timeout. ``wary``:
    do not trust the peer. The connection then ends if the peer sends more than 256 KiB during one wait for an
    answer, or does not read what it is sent within ``timeout_s``.
    """

    def __init__(
        self, parameters: Any, socket_module: Any, tls_context: Any, timeout_s: float | None = None,
        connected: Any = None, wary: bool = False,
    ) -> None:
        self.parameters = parameters
        given_ms = parameters.options.get("connection_timeout", DEFAULT_TIMEOUT_S * 1000)
        self.timeout_s: float = given_ms / 1000 if timeout_s is None else timeout_s
        self._wary = wary
        self._taken = 0  # bytes since the last request
        self.error: ConnectionClosed | None = None  # why the connection ended
        self._outgoing = bytearray()
        self._sending = False
        self._corked = False  # between cork() and uncork()
        self._ended_by_peer = False
        self._transport = Transport(socket_module)
        self._last_sent = self._last_received = time.monotonic()
        try:
            self._transport.connect(parameters, self.timeout_s, tls_context, connected)
        except BaseException:
            self._transport.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Implemented by a protocol.

    def close(self) -> None:
        """Close the connection by the protocol's close method. A second call does nothing."""
        raise NotImplementedError

    @property
    def interval_s(self) -> float | None:
        """The heartbeat interval in seconds; 0 or None: no heartbeats. A heartbeat is sent after half an
        interval without output. A broker that is silent for two intervals counts as lost.
        """
        raise NotImplementedError

    def feed(self, octets: bytes) -> None:
        """Pass received bytes to the parser. ``dispatch`` then handles the complete frames or packets."""
        raise NotImplementedError

    def dispatch(self) -> bool:
        """Handle every complete frame or packet. Returns False if there was none. Raises ConnectionClosed."""
        raise NotImplementedError

    def send_sign_of_life(self) -> None:
        """Send a heartbeat (in MQTT: PINGREQ)."""
        raise NotImplementedError

    def ended(self, error: ConnectionClosed) -> None:
        """Called once when the connection ends. Does nothing unless a subclass overrides it."""

    # Called by users.

    @property
    def closed(self) -> bool:
        """True if the connection has ended; ``error`` is then the reason."""
        return self.error is not None

    @property
    def socket(self) -> Any:
        """The non-blocking socket, for a caller that reads and writes it directly (see ``take_over``)."""
        return self._transport.socket

    def fileno(self) -> int:
        return self._transport.socket.fileno()

    def due_in(self) -> float | None:
        """Return the seconds until a heartbeat is due or the broker counts as lost; None: no heartbeats."""
        if not self.interval_s:
            return None
        return max(0, min(self.due_at(), self._last_received + 2 * self.interval_s) - time.monotonic())

    def due_at(self) -> float:
        """Return the monotonic time in seconds at which a heartbeat must be sent."""
        return self._last_sent + self.interval_s / 2

    def cork(self) -> None:
        """Collect output instead of sending it, until ``uncork``, a wait for an answer, or 64 KiB."""
        self._corked = True

    def uncork(self) -> None:
        """Send the output that ``cork`` held back. May switch greenlets."""
        self._corked = False
        if self._outgoing:
            self.send(b"")

    def uncork_ready(self) -> bool:
        """Send what ``cork`` held back, without waiting. Returns False if ``uncork`` must send the rest."""
        self._corked = False
        try:
            if self._outgoing:
                self._send_some()
                self._last_sent = time.monotonic()
        except OSError as error:
            self._lost(error)
        return not self._outgoing

    def has_sent_all(self) -> bool:
        """Return whether the socket has taken all output."""
        return not self._outgoing

    def has_more(self) -> bool:
        """Return whether TLS holds received bytes that poll() does not report."""
        return self._transport.holds_octets()

    def abort(self) -> None:
        """Close the socket without the protocol's close, as a crashed client would."""
        self.end(ConnectionClosed(0, "aborted by this client"))

    def send(self, octets: bytes) -> None:
        """Write complete frames or packets, or add them to the output that ``cork`` holds back. Raises
        ConnectionClosed. May switch greenlets.
        """
        self.raise_if_closed()
        self._outgoing += octets
        if self._sending:
            return  # another greenlet in the loop below sends this, too
        if self._corked and len(self._outgoing) < _CORKED_OCTETS:
            return
        self._sending = True
        until = time.monotonic() + self.timeout_s if self._wary else None
        try:
            while self._outgoing:
                if not self._send_some() and self._outgoing:
                    # Waits no longer than the peer may be silent; this loop does not send heartbeats.
                    self._wait_for_room(until)
                    self._take()
                    if self._ended_by_peer:
                        break
            self._last_sent = time.monotonic()
        except OSError as error:
            self._lost(error)
        finally:
            self._sending = False

    def receive(self, deadline: float | None = None) -> bool:
        """Wait for input until at least one frame or packet is handled. Returns False if none arrives until
        the monotonic time ``deadline`` (None: no limit). Raises ConnectionClosed. May switch greenlets.
        """
        if self._corked:
            self.uncork()
        while True:
            if self.dispatch():
                return True
            self._nothing_came()
            wait_s = self.due_in()
            if deadline is not None:
                remaining_s = deadline - time.monotonic()
                wait_s = remaining_s if wait_s is None else min(wait_s, remaining_s)
                if remaining_s <= 0 and not self._transport.wait(0):
                    return False
            try:
                self._transport.wait(wait_s)
                self._take()
            except OSError as error:
                self._lost(error)

    def receive_ready(self) -> bool:
        """Handle the input that has arrived, and send a heartbeat if one is due. Does not wait for input.
        Returns False if no frame or packet was complete. Raises ConnectionClosed. May switch greenlets,
        because it may write.
        """
        self.raise_if_closed()
        try:
            self._take()
        except OSError as error:
            self._lost(error)
        came = self.dispatch()
        if not came:
            self._nothing_came()
        else:
            self._give_sign_of_life()  # a peer that sends without pause gets heartbeats, too
        return came

    def wait_for(
        self, predicate: Callable[[], object], timeout_s: float | None = None, what: str = "",
    ) -> None:
        """Receive and handle input until ``predicate()`` is true. Raises Timeout after ``timeout_s`` (None:
        no limit), and ConnectionClosed. May switch greenlets. ``what``: the awaited answer's name, for error
        texts.
        """
        deadline = deadline_in(timeout_s)
        self._taken = 0
        while not predicate():
            came = self.receive(deadline)
            # other input does not extend the time for the answer
            if not came or self._wary and not predicate() and deadline and time.monotonic() > deadline:
                raise Timeout(
                    f"no answer from {self.parameters.host}:{self.parameters.port} within {timeout_s:.3g} s"
                    + (f": {what} was awaited" if what else ""))

    def raise_if_closed(self) -> None:
        if self.error is not None:
            raise self.error.again()

    def fail(self, error: ConnectionClosed, cause: BaseException | None = None) -> NoReturn:
        """End the connection and raise ``error`` or, if the connection had ended before, the first error."""
        self.end(error)
        raise (self.error or error).again() from cause

    def end(self, error: ConnectionClosed) -> None:
        """Close the socket and store ``error`` as the reason, unless the connection has ended before."""
        if self.error is not None:
            return
        self.error = error
        self.ended(error)
        self._transport.close()

    # The rest is private.

    def _send_some(self):
        with memoryview(self._outgoing) as view:
            sent = self._transport.send(view)
        del self._outgoing[:sent]
        return sent

    def _wait_for_room(self, until):
        wait_s = self._silence_left()
        if until is not None:
            left_s = until - time.monotonic()
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        if self._transport.wait(wait_s, writable=True):
            return
        silence_s = self._silence_left()
        if silence_s is not None and silence_s <= 0:
            self._fail_of_silence()
        if until is not None and time.monotonic() >= until:
            self.fail(ConnectionClosed(
                0, f"the broker has taken nothing of what it is sent for {self.timeout_s:g} s"))

    def _take(self):
        octets = self._transport.receive(_WARY_READ_OCTETS if self._wary else _READ_OCTETS)
        if octets:
            self._last_received = time.monotonic()
            self._taken += len(octets)
            if self._wary and self._taken > _WARY_OCTETS:
                self.fail(ConnectionClosed(
                    0, f"the broker sends more than {_WARY_OCTETS} bytes that nobody has asked for"))
            self.feed(octets)
        elif octets is not None:
            self._ended_by_peer = True

    def _nothing_came(self):
        self.raise_if_closed()
        if self._ended_by_peer:
            self.fail(ConnectionClosed(0, "the broker closed the socket without saying why"))
        if self.interval_s:
            if self._silence_left() < 0:
                self._fail_of_silence()
            self._give_sign_of_life()

    def _give_sign_of_life(self):
        if self.interval_s and time.monotonic() >= self.due_at() and not self._outgoing:
            self.send_sign_of_life()

    def _silence_left(self):
        """Return the seconds until a silent broker counts as lost; None without heartbeats."""
        return self._last_received + 2 * self.interval_s - time.monotonic() if self.interval_s else None

    def _fail_of_silence(self):
        self.fail(ConnectionClosed(0, f"nothing heard from the broker for {2 * self.interval_s} s"))

    def _lost(self, error):
        """End the connection and raise ConnectionClosed, because the socket failed. Handles the input that
        has arrived first, because it may tell the broker's reason.
        """
        if self.error is None:
            try:
                self._take()
                self.dispatch()
            except (OSError, ConnectionClosed):
                pass
        self.fail(
            ConnectionClosed(0, f"connection to {self.parameters.host}:{self.parameters.port} lost: {error}"),
            error,
        )


def deadline_in(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s
