"""PROXY protocol, versions 1 and 2: reads the header in which a proxy announces its client's address.

The header is at the start of a connection. Also writes headers of version 2. Formats of the HAProxy
specification:

    v1   "PROXY" SP "TCP4" | "TCP6" SP source SP destination SP source-port SP destination-port CR LF
         at most 107 bytes
         "PROXY" SP "UNKNOWN" anything CR LF
    v2   signature (12) | version 2 and command (1) | family and transport (1) | length (2) | addresses | TLVs
         command 0 LOCAL: the proxy speaks for itself; 1 PROXY. TLV: type (1) | length (2) | value; type 3 is
         a CRC-32C of the whole header

Runs between accept() and the handshakes, in the connection's own greenlet. Reads exactly the header from the
socket, because TLS may follow. A header from an untrusted peer (``Proxies``) stays on the socket; the
protocol's server refuses it.
"""
import struct
from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, NamedTuple

import gevent
from gevent import socket

from gomq_py import octets

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V1_BEGIN = b"PROXY "
V1_MAX_OCTETS = 107
V2_FIXED = struct.Struct(">12sBBH")
assert V2_FIXED.size == 16
# The specification allows 64 KiB, and wants a header to fit a first segment. Names of certificates and ids of
# a load balancer need a few hundred octets.
V2_MAX_OCTETS = 4096
TLV_CRC32C = 3
# The first octet tells a header from AMQP ("A") and TLS (0x16).
FIRST_OCTETS = (V1_BEGIN[:1], SIGNATURE[:1])

# v2's octet of family and transport -> (addresses, class of an address). Datagrams do not come over a stream.
V2_ADDRESSES = {
    0x11: (struct.Struct(">4s4sHH"), IPv4Address), 0x21: (struct.Struct(">16s16sHH"), IPv6Address)
}
V2_UNIX_STREAM, V2_UNSPECIFIED, V2_UNIX = 0x31, 0x00, struct.Struct(">108s108s")


class ProxyProtocolError(OSError):
    """A proxy has sent a malformed header, or none in time."""

    def __init__(self, text: str):
        super().__init__(f"PROXY protocol: {text}")


class Header(NamedTuple):
    """A parsed PROXY header. ``source``: the client's (host, port); None if the proxy does not announce it.
    ``size``: bytes of the header.
    """

    source: tuple[str, int] | None
    size: int


class Proxies:
    """Decides which peers of a listener may announce their client's address in a PROXY header. Over TCP these
    are the configured sources, by default this machine; over a unix socket any peer.
    """

    # A source over TCP must send a header: otherwise a header that its client wrote would pass for the
    # proxy's.
    def __init__(self, enabled: bool = False, sources: Sequence[Any] = (), timeout_s: float = 10.0):
        """``enabled``: whether TCP peers may send a header. ``sources``: the networks of these peers, as
        text or of the ipaddress module; none: this machine. ``timeout_s``: how long to wait for a header.
        """
        self.update(enabled, sources, timeout_s)

    def update(self, enabled: bool, sources: Sequence[Any], timeout_s: float) -> None:
        """Set the rules for later connections. The arguments are the constructor's."""
        self._enabled = enabled
        self._sources = tuple(ip_network(str(source), strict=False) for source in sources)
        self._timeout_s = timeout_s

    def may_announce(self, address: Any) -> bool:
        """Whether this peer may send a PROXY header. If not, client_of() does not switch greenlets."""
        return not isinstance(address, tuple) or self._enabled and self._trusts(address[0])

    def client_of(self, connection: Any, address: Any) -> Any:
        """Return the client's address: from the peer's PROXY header, or else ``address``. Raises OSError. May
        switch greenlets. ``address``: the result of accept(). The header is removed from the socket.
        """
        if not self.may_announce(address):
            return address
        if not isinstance(address, tuple) and not _begins_header(connection, self._timeout_s):
            return address
        announced = read_header(connection, self._timeout_s).source
        if announced is None or _is_loopback_of_another_machine(announced, address):
            return address
        return announced

    def _trusts(self, host: str) -> bool:
        parsed = _plain(host)
        if not self._sources:
            return parsed.is_loopback
        return any(parsed in network for network in self._sources)


def _plain(host: str) -> IPv4Address | IPv6Address:
    """Parse an IP address, and drop its scope. An IPv4 address mapped into IPv6 becomes an IPv4 address."""
    parsed = ip_address(host.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed


def _is_loopback_of_another_machine(announced: tuple[str, int], proxy: Any) -> bool:
    """Whether a proxy on another machine announces a loopback address, which means that machine itself."""
    return isinstance(proxy, tuple) and is_loopback(announced[0]) and not is_loopback(proxy[0])


def is_loopback(host: str) -> bool:
    """Whether an IP address is a loopback address."""
    return _plain(host).is_loopback


def _begins_header(connection: Any, timeout_s: float) -> bool:
    """Whether the next byte on the socket, which is not read, begins a header. Raises OSError. May switch
    greenlets.
    """
    with gevent.Timeout(timeout_s, OSError(f"nothing came within {timeout_s:g} s")):
        return connection.recv(1, socket.MSG_PEEK) in FIRST_OCTETS


def read_header(connection: Any, timeout_s: float) -> Header:
    """Read the PROXY header from the socket, and nothing else. May switch greenlets. Raises OSError;
    ProxyProtocolError for a bad header or after ``timeout_s``.
    """
    taken = b""
    with gevent.Timeout(timeout_s, ProxyProtocolError(f"no header within {timeout_s:g} s")):
        while True:
            seen = connection.recv(V2_MAX_OCTETS - len(taken), socket.MSG_PEEK)
            if not seen and not taken:
                # many proxies check so whether the broker is there
                raise OSError("the peer closed the socket without a word")
            if not seen:
                raise ProxyProtocolError("the peer closed the socket before its header was complete")
            header = parse(taken + seen)
            # All octets of an incomplete header are taken, so that the next peek waits for more.
            part = len(seen) if header is None else header.size - len(taken)
            taken += connection.recv(part)
            if header is not None:
                return header


def header_of(source: Any, destination: Any) -> bytes:
    """Return a version 2 header for a client at ``source`` connected to ``destination``, socket addresses."""
    # It tells no address of a client that has come over a unix socket.
    if not isinstance(source, tuple) or not isinstance(destination, tuple):
        return SIGNATURE + bytes((0x20, V2_UNSPECIFIED, 0, 0))
    hosts = [_plain(source[0]), _plain(destination[0])]
    family = 0x11
    if any(isinstance(host, IPv6Address) for host in hosts):
        family = 0x21
        hosts = [_in_six(host) for host in hosts]
    layout, _ = V2_ADDRESSES[family]
    addresses = layout.pack(*(host.packed for host in hosts), source[1], destination[1])
    return V2_FIXED.pack(SIGNATURE, 0x21, family, len(addresses)) + addresses


def _in_six(host: IPv4Address | IPv6Address) -> IPv6Address:
    return host if isinstance(host, IPv6Address) else IPv6Address(f"::ffff:{host}")


def parse(data: bytes) -> Header | None:
    """Return the PROXY header at the start of ``data``, or None if more bytes are needed. Raises
    ProxyProtocolError if ``data`` cannot begin a valid header.
    """
    if data[:len(SIGNATURE)] == SIGNATURE[:len(data)]:
        return _parse_v2(data) if len(data) >= V2_FIXED.size else None
    if data[:len(V1_BEGIN)] == V1_BEGIN[:len(data)]:
        return _parse_v1(data)
    raise ProxyProtocolError(f"a header was due, but {data[:16]!r} came")


def _parse_v1(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, V1_MAX_OCTETS)
    if end < 0:
        if len(data) >= V1_MAX_OCTETS:
            raise ProxyProtocolError(f"version 1 header without an end within {V1_MAX_OCTETS} bytes")
        return None
    size = end + 2
    _, family, *rest = data[:end].split(b" ")
    if family == b"UNKNOWN":
        return Header(None, size)
    parsers: dict[bytes, Callable[[str], Any]] = {b"TCP4": IPv4Address, b"TCP6": IPv6Address}
    try:
        address_of = parsers[family]
        source, destination, source_port, destination_port = (part.decode("ascii") for part in rest)
        host = address_of(source)
        address_of(destination)
        _port(destination_port)
        return Header((str(_plain(str(host))), _port(source_port)), size)
    except (KeyError, AddressValueError, ValueError):
        raise ProxyProtocolError(f"malformed version 1 header {data[:end]!r}") from None


def _port(text: str) -> int:
    if not text.isdecimal() or str(int(text)) != text or int(text) > 65535:
        raise ValueError(text)
    return int(text)


def _parse_v2(data: bytes) -> Header | None:
    _, version_command, family, length = V2_FIXED.unpack_from(data)
    version, command = version_command >> 4, version_command & 0x0F
    if version != 2 or command > 1:
        raise ProxyProtocolError(f"unknown version {version} or command {command}")
    size = V2_FIXED.size + length
    if size > V2_MAX_OCTETS:
        raise ProxyProtocolError(f"version 2 header of {size} bytes, more than {V2_MAX_OCTETS}")
    if len(data) < size:
        return None
    header = data[:size]
    if command == 0:
        return Header(None, size)
    source, tlvs_at = _v2_source(header, family)
    _check_tlvs(header, tlvs_at)
    return Header(source, size)


def _v2_source(header: bytes, family: int) -> tuple[tuple[str, int] | None, int]:
    """Return (the client's (host, port) or None, position of the TLVs) of a header of version 2."""
    if family == V2_UNSPECIFIED:
        return None, len(header)
    if family != V2_UNIX_STREAM and family not in V2_ADDRESSES:
        raise ProxyProtocolError(f"unknown address family and transport 0x{family:02x}")
    layout, address_of = V2_ADDRESSES.get(family, (V2_UNIX, None))
    tlvs_at = V2_FIXED.size + layout.size
    if len(header) < tlvs_at:
        raise ProxyProtocolError(f"version 2 header of {len(header)} bytes has no room for its addresses")
    if address_of is None:  # the address is a unix socket on the proxy's machine
        return None, tlvs_at
    source, _, port, _ = layout.unpack_from(header, V2_FIXED.size)
    return (str(_plain(str(address_of(source)))), port), tlvs_at


def _check_tlvs(header: bytes, position: int) -> None:
    """Check the TLVs at ``header[position]`` and, if present, the checksum. Raises ProxyProtocolError."""
    while position < len(header):
        if len(header) - position < 3:
            raise ProxyProtocolError("version 2 header ends inside a TLV")
        kind, length = struct.unpack_from(">BH", header, position)
        start, end = position + 3, position + 3 + length
        if end > len(header):
            raise ProxyProtocolError(f"TLV of type 0x{kind:02x} is longer than the header")
        if kind == TLV_CRC32C:
            zeroed = header[:start] + bytes(length) + header[end:]
            if int.from_bytes(header[start:end], "big") != octets.crc32c(0, zeroed, 0, len(zeroed)):
                raise ProxyProtocolError("the checksum does not fit the header")
        position = end
