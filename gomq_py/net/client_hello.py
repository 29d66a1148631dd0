"""ClientHello: reads the host name that a TLS client wants, from bytes that stay on the socket.

OpenSSL gives the name only in the handshake, too late to choose versions, ciphers and the need for a client
certificate. Formats of RFC 8446 §4.1.2 and §5.1, RFC 6066 §3. Unauthenticated peers send these bytes, so
every length is checked. A hello that cannot be parsed has no name, and the handshake refuses it.
"""
from typing import Any

from gevent import socket
from gevent.socket import wait_read

RECORD_HANDSHAKE, CLIENT_HELLO, EXTENSION_SERVER_NAME, HOST_NAME = 22, 1, 0, 0
# A hello of post-quantum key shares has 2 KiB; the largest record has 16.
LOOK_OCTETS = 16 * 1024


class Incomplete(Exception):
    """More bytes are needed to find the host name in a TLS ClientHello."""


def asked_host(connection: Any) -> str:
    """Return the host name in the ClientHello on the socket, in lower case, or "". The bytes stay on the
    socket. The caller limits the time. Raises OSError. May switch greenlets.
    """
    seen = -1
    try:
        while True:
            data = connection.recv(LOOK_OCTETS, socket.MSG_PEEK)
            try:
                return server_name(data)
            except Incomplete:
                if len(data) in (seen, LOOK_OCTETS):  # the socket has ended, or the hello is too long
                    return ""
            seen = len(data)
            # Peeked octets stay readable: only more octets shall wake this greenlet.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, seen + 1)
            wait_read(connection.fileno())
    finally:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def server_name(data: bytes) -> str:
    """Return the host name in the ClientHello at the start of ``data``, or "". Raises Incomplete."""
    try:
        hello = _Octets(_handshake_message(data))
        hello.take(2 + 32)  # version, random
        for width in (1, 2, 1):  # session id, cipher suites, compression methods
            hello.take(hello.number(width))
        extensions = _Octets(hello.take(hello.number(2)))
        while extensions.left():
            kind, body = extensions.number(2), extensions.take(extensions.number(2))
            if kind == EXTENSION_SERVER_NAME:
                return _host_name(_Octets(body))
    except (ValueError, UnicodeDecodeError):
        pass
    return ""


def _handshake_message(data: bytes) -> bytes:
    """Return the ClientHello's body, from one or more TLS records. Raises Incomplete, ValueError."""
    message = b""
    position = 0
    while True:
        if data[position:position + 1] not in (b"", bytes([RECORD_HANDSHAKE])):
            raise ValueError("no handshake record")
        if len(data) < position + 5:
            raise Incomplete
        length = int.from_bytes(data[position + 3:position + 5], "big")
        if not length:
            raise ValueError("empty record")
        message += data[position + 5:position + 5 + length]
        if message[0:1] not in (b"", bytes([CLIENT_HELLO])):
            raise ValueError("no hello")
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4], "big"):
            return message[4:4 + int.from_bytes(message[1:4], "big")]
        position += 5 + length
        if position > len(data):
            raise Incomplete


def _host_name(names: "_Octets") -> str:
    """Return the first host name of a server_name extension, in lower case, or "". Raises ValueError."""
    names.number(2)
    while names.left():
        kind, name = names.number(1), names.take(names.number(2))
        if kind == HOST_NAME:
            return name.decode("ascii").lower().rstrip(".")
    return ""


class _Octets:
    """Reads numbers and slices of some bytes, one after the other. Raises ValueError past the end."""

    def __init__(self, data: bytes):
        self._data = data
        self._position = 0

    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        if count > self.left():
            raise ValueError("a length points past the end")
        self._position += count
        return self._data[self._position - count:self._position]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")
