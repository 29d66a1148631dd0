"""PROXY protocol: headers as literal octets, whole and in pieces, and who is believed."""
import struct

import gevent
import pytest
from crc32c import crc32c
from gevent import socket
from hypothesis import given
from hypothesis import strategies as st

from gomq_py.net.proxy_protocol import (
    SIGNATURE, V2_MAX_OCTETS, Header, Proxies, ProxyProtocolError, header_of, is_loopback, parse,
    read_header,
)
from tests.support.waiting import in_time

CLIENT, PROXY = ("192.0.2.7", 56324), ("127.0.0.1", 41000)
V1_TCP4 = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 5672\r\n"
V1_TCP6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 5672\r\n"
V1_LONGEST = b"PROXY UNKNOWN " + b"f" * 91 + b"\r\n"
# Written out rather than packed: signature, version 2 and PROXY, TCP over IPv4, 12 octets, 192.0.2.7 >
# 198.51.100.1, 56324 > 5672.
V2_TCP4 = bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 000c c0000207 c6336401 dc04 1628")
V2_TCP6 = bytes.fromhex(
    "0d0a0d0a000d0a515549540a 21 21 0024 20010db8000000000000000000000007 "
    "20010db8000000000000000000000001 dc04 1628")
V2_LOCAL = bytes.fromhex("0d0a0d0a000d0a515549540a 20 00 0000")
BEHIND = b"AMQP\x00\x00\x09\x01"


def v2(family, payload, version_command=0x21):
    """A version 2 header of any kind."""
    return SIGNATURE + struct.pack(">BBH", version_command, family, len(payload)) + payload


def tlv(kind, value):
    return struct.pack(">BH", kind, len(value)) + value


def with_checksum(family, payload):
    """A version 2 header that ends with its CRC-32C."""
    header = v2(family, payload + tlv(3, bytes(4)))
    return header[:-4] + crc32c(header).to_bytes(4, "big")


GOOD = {
    "v1 TCP4": (V1_TCP4, CLIENT),
    "v1 TCP6": (V1_TCP6, ("2001:db8::7", 56324)),
    "v1 IPv4 in IPv6": (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 56324 5672\r\n", CLIENT),
    "v1 highest values": (
        b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65535)
    ),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", None),
    "v1 UNKNOWN with addresses": (b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n", None),
    "v1 of 107 octets": (V1_LONGEST, None),
    "v2 TCP4": (V2_TCP4, CLIENT),
    "v2 TCP6": (V2_TCP6, ("2001:db8::7", 56324)),
    "v2 LOCAL": (V2_LOCAL, None),
    "v2 LOCAL with addresses that mean nothing": (v2(0x11, V2_TCP4[16:], 0x20), None),
    "v2 unix": (v2(0x31, bytes(216)), None),
    "v2 unspecified with rest": (v2(0x00, b"whatever"), None),
    "v2 TLVs": (
        v2(
            0x11,
            V2_TCP4[16:] + tlv(1, b"amqp") + tlv(2, b"broker.example.com") + tlv(4, bytes(9)) + tlv(
                0xEA, b""
            ),
        ),
        CLIENT,
    ),
    "v2 checksum": (with_checksum(0x11, V2_TCP4[16:] + tlv(2, b"x")), CLIENT),
    "v2 as large as it may be": (v2(0x11, V2_TCP4[16:] + tlv(4, bytes(V2_MAX_OCTETS - 31))), CLIENT),
}
BAD = {
    "AMQP": BEHIND,
    "TLS": b"\x16\x03\x01\x02\x00\x01",
    "garbage": b"\xff" * 200,
    "HTTP": b"POST / HTTP/1.1\r\n",
    "v1 other family": b"PROXY TCP5 192.0.2.7 198.51.100.1 1 2\r\n",
    "v1 lower case": b"proxy TCP4 192.0.2.7 198.51.100.1 1 2\r\n",
    "v1 nothing": b"PROXY \r\n",
    "v1 no ports": b"PROXY TCP4 192.0.2.7 198.51.100.1\r\n",
    "v1 two spaces": b"PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n",
    "v1 trailing space": b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2 \r\n",
    "v1 port too high": b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n",
    "v1 port with sign": b"PROXY TCP4 192.0.2.7 198.51.100.1 +1 2\r\n",
    "v1 port with zero in front": b"PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n",
    "v1 host name": b"PROXY TCP4 client.example.com 198.51.100.1 1 2\r\n",
    "v1 families mixed": b"PROXY TCP4 2001:db8::7 198.51.100.1 1 2\r\n",
    "v1 not ASCII": b"PROXY TCP4 192.0.2.\xb2 198.51.100.1 1 2\r\n",
    "v1 of 108 octets": b"PROXY UNKNOWN " + b"f" * 92 + b"\r\n",
    "v1 without end": b"PROXY UNKNOWN " + b"f" * 4000,
    "v2 version 1": v2(0x11, V2_TCP4[16:], 0x11),
    "v2 unknown command": v2(0x11, V2_TCP4[16:], 0x22),
    "v2 datagrams": v2(0x12, V2_TCP4[16:]),
    "v2 unknown family": v2(0x41, V2_TCP4[16:]),
    "v2 no room for IPv4": v2(0x11, bytes(11)),
    "v2 no room for IPv6": v2(0x21, bytes(35)),
    "v2 no room for unix": v2(0x31, bytes(215)),
    "v2 TLV cut in its head": v2(0x11, V2_TCP4[16:] + b"\x01\x00"),
    "v2 TLV longer than the header": v2(0x11, V2_TCP4[16:] + b"\x01\x00\x02x"),
    "v2 wrong checksum": with_checksum(0x11, V2_TCP4[16:])[:-1] + b"\x00",
    "v2 checksum of no size": v2(0x11, V2_TCP4[16:] + tlv(3, b"")),
    "v2 too large": v2(0x11, V2_TCP4[16:] + tlv(4, bytes(V2_MAX_OCTETS - 30))),
    "v2 65535 octets announced": SIGNATURE + b"\x21\x11\xff\xff",
}


@pytest.fixture
def ends():
    """Two ends of a connection: the proxy's, the broker's."""
    pair = socket.socketpair()
    yield pair
    for one in pair:
        one.close()


@pytest.mark.parametrize("header, source", GOOD.values(), ids=GOOD.keys())
def test_header_is_understood_whole_and_with_octets_behind_it(header, source):
    assert parse(header) == Header(source, len(header))
    assert parse(header + BEHIND) == Header(source, len(header))


@pytest.mark.parametrize("header", [header for header, _ in GOOD.values()], ids=GOOD.keys())
def test_every_part_of_a_header_waits_for_the_rest(header):
    assert [parse(header[:size]) for size in range(len(header))] == [None] * len(header)


@pytest.mark.parametrize("octets", BAD.values(), ids=BAD.keys())
def test_what_is_no_header_is_refused(octets):
    with pytest.raises(ProxyProtocolError, match="^PROXY protocol: "):
        parse(octets)


@pytest.mark.parametrize("octets", BAD.values(), ids=BAD.keys())
def test_what_is_no_header_is_refused_octet_by_octet(octets):
    """At the latest where the whole of it is, and without ever taking it for complete."""
    with pytest.raises(ProxyProtocolError):
        for size in range(len(octets) + 1):
            assert parse(octets[:size]) is None


@pytest.mark.parametrize("header, source", GOOD.values(), ids=GOOD.keys())
def test_exactly_the_header_is_taken_from_the_socket(ends, header, source):
    proxy, ours = ends
    proxy.sendall(header + BEHIND)

    assert read_header(ours, 30).source == source
    assert ours.recv(100) == BEHIND


@pytest.mark.parametrize("header", [V1_TCP4, V2_TCP6, V1_LONGEST], ids=["v1", "v2", "longest v1"])
def test_header_may_come_octet_by_octet(ends, header):
    proxy, ours = ends
    reading = gevent.spawn(read_header, ours, 30)
    for position in range(len(header)):
        assert not reading.ready()
        proxy.sendall(header[position:position + 1])
        gevent.sleep(0)
        gevent.sleep(0)
    proxy.sendall(BEHIND)

    assert reading.get(timeout=in_time(30)).size == len(header)
    assert ours.recv(100) == BEHIND


@pytest.mark.parametrize(
    "begin", [b"", b"PROXY TCP4 192.0.", V2_TCP4[:20]], ids=["nothing", "part of v1", "part of v2"]
)
def test_header_that_does_not_come_in_time_is_refused(ends, begin):
    proxy, ours = ends
    proxy.sendall(begin)

    with pytest.raises(ProxyProtocolError, match="no header within 0.05 s"):
        read_header(ours, 0.05)


def test_proxy_that_hangs_up_inside_its_header_is_refused(ends):
    proxy, ours = ends
    proxy.sendall(V1_TCP4[:20])
    proxy.close()

    with pytest.raises(ProxyProtocolError, match="closed the socket before its header was complete"):
        read_header(ours, 30)


def test_probe_that_hangs_up_at_once_is_no_fault_of_a_proxy(ends):
    proxy, ours = ends
    proxy.close()

    with pytest.raises(OSError, match="without a word") as caught:
        read_header(ours, 30)
    assert not isinstance(caught.value, ProxyProtocolError)


@given(st.sampled_from([header for header, _ in GOOD.values()]), st.integers(0, 300), st.binary(max_size=60))
def test_octets_of_any_kind_are_a_header_or_refused(header, at, noise):
    bent = bytearray(header)
    bent[at % len(bent):at % len(bent) + len(noise)] = noise

    try:
        found = parse(bytes(bent))
    except ProxyProtocolError:
        return
    assert found is None or 0 < found.size <= len(bent)


# who is believed

def client_of(proxies, ends, octets, address):
    """Whom the broker takes the peer at ``address`` for, that has sent ``octets``;
    and what is left to read.
    """
    proxy, ours = ends
    proxy.sendall(octets + BEHIND)
    return proxies.client_of(ours, address), ours.recv(100)


@pytest.mark.parametrize("sources, proxy", [
    ((), ("127.0.0.1", 1)), ((), ("::1", 1, 0, 0)), ((), ("::ffff:127.0.0.1", 1, 0, 0)),
    (("10.0.0.0/8",), ("10.1.2.3", 1)), (("10.0.0.0/8",), ("::ffff:10.1.2.3", 1, 0, 0)),
    (("198.51.100.7", "fd00::/8"), ("fd00::1", 1, 0, 0)),
    (("fe80::/10",), ("fe80::1%eth0", 1, 0, 2)),
])
def test_trusted_proxy_announces_its_client(ends, sources, proxy):
    assert client_of(Proxies(True, sources), ends, V1_TCP4, proxy) == (CLIENT, BEHIND)


@pytest.mark.parametrize("enabled, sources, peer", [
    (True, (), ("192.0.2.1", 1)), (True, ("10.0.0.0/8",), ("127.0.0.1", 1)),
    (True, ("10.0.0.0/8",), ("11.0.0.1", 1)),
    (True, ("10.0.0.0/8",), ("2001:db8::1", 1, 0, 0)), (False, (), ("127.0.0.1", 1)),
    (False, ("10.0.0.0/8",), ("10.1.2.3", 1)),
])
def test_anybody_else_is_an_ordinary_client_whose_header_is_left_to_the_protocol_behind(
    ends, enabled, sources, peer
):
    assert client_of(Proxies(enabled, sources), ends, V1_TCP4, peer) == (peer, V1_TCP4 + BEHIND)


def test_trusted_proxy_must_announce(ends):
    """Or a proxy that was not told to send headers would pass on those that its clients write."""
    with pytest.raises(ProxyProtocolError, match="a header was due, but .*AMQP"):
        client_of(Proxies(True), ends, b"", PROXY)


@pytest.mark.parametrize("header", [V2_LOCAL, b"PROXY UNKNOWN\r\n", v2(0x31, bytes(216)), v2(0x00, b"")])
def test_proxy_that_speaks_for_itself_is_the_peer(ends, header):
    assert client_of(Proxies(True), ends, header, PROXY) == (PROXY, BEHIND)


@pytest.mark.parametrize("host", [b"TCP4 127.0.0.1 127.0.0.1", b"TCP6 ::1 ::1", b"TCP6 ::ffff:127.0.0.1 ::1"])
def test_loopback_announced_by_another_machine_is_not_this_machine(ends, host):
    far = ("192.0.2.1", 1)

    assert (
        client_of(Proxies(True, ("192.0.2.1",)), ends, b"PROXY " + host + b" 1 2\r\n", far) == (far, BEHIND)
    )


def test_loopback_announced_by_this_machine_is_this_machine(ends):
    assert client_of(Proxies(True), ends, b"PROXY TCP4 127.0.0.1 127.0.0.1 77 2\r\n", PROXY) == (
        ("127.0.0.1", 77), BEHIND
    )


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("header, seen", [
    (V2_TCP4, CLIENT), (V1_TCP6, ("2001:db8::7", 56324)), (b"", "unix:7:1"), (V2_LOCAL, "unix:7:1")
])
def test_peer_of_a_unix_socket_may_announce(ends, enabled, header, seen):
    assert client_of(Proxies(enabled), ends, header, "unix:7:1") == (seen, BEHIND)


def test_silent_peer_of_a_unix_socket_is_let_go(ends):
    with pytest.raises(OSError, match="nothing came within 0.05 s"):
        Proxies(timeout_s=0.05).client_of(ends[1], "unix:7:1")


def test_change_counts_for_the_next_connection(ends):
    proxies = Proxies()
    proxies.update(True, ("127.0.0.1",), 5)

    assert client_of(proxies, ends, V2_TCP4, PROXY) == (CLIENT, BEHIND)


@pytest.mark.parametrize("source, destination, header, told", [
    (CLIENT, ("198.51.100.1", 5672), V2_TCP4, CLIENT),
    (("::ffff:192.0.2.7", 56324, 0, 0), ("198.51.100.1", 5672), V2_TCP4, CLIENT),
    (("2001:db8::7", 56324, 0, 0), ("2001:db8::1", 5672, 0, 0), V2_TCP6, ("2001:db8::7", 56324)),
    (("fe80::7%eth0", 56324, 0, 2), ("fe80::1%eth0", 5672, 0, 2), None, ("fe80::7", 56324)),
    (CLIENT, ("::1", 5672, 0, 0), None, CLIENT),
    ("unix:7:1", "/run/amqp.sock", V2_LOCAL, None),
])
def test_header_tells_a_clients_address(source, destination, header, told):
    written = header_of(source, destination)

    assert header is None or written == header
    assert parse(written) == (told, len(written))


@pytest.mark.parametrize("host, is_own", [
    ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True),
    ("192.0.2.7", False), ("::", False),
])
def test_loopback_is_a_machines_own(host, is_own):
    assert is_loopback(host) == is_own
