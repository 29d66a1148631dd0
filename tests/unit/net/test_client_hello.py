"""The host name in a hello: of the library's own making, cut anywhere, and bent."""
import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gomq_py.net.client_hello import Incomplete, server_name


def hello(name="broker.example.com"):
    """The record that a TLS client of the standard library begins with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def made(extensions, session=b"", record=22, message=1):
    """A hello by hand around these octets of extensions."""
    body = bytes(34) + bytes([len(session)]) + session + b"\x00\x02\x13\x01" + b"\x01\x00" + struct.pack(
        ">H", len(extensions)
    ) + extensions
    handshake = bytes([message]) + len(body).to_bytes(3, "big") + body
    return struct.pack(">BHH", record, 0x0301, len(handshake)) + handshake


def names(*entries):
    """A server_name extension of (kind, name) entries."""
    listed = b"".join(struct.pack(">BH", kind, len(name)) + name for kind, name in entries)
    return struct.pack(">HHH", 0, len(listed) + 2, len(listed)) + listed


@pytest.mark.parametrize("asked, found", [
    ("broker.example.com", "broker.example.com"), ("Broker.Example.COM", "broker.example.com"), (None, "")
])
def test_name_is_found_in_a_real_hello(asked, found):
    assert server_name(hello(asked)) == found


def test_name_is_found_in_a_hello_by_hand():
    assert server_name(made(b"\x00\x17\x00\x00" + names((0, b"a.example.com.")))) == "a.example.com"
    assert (
        server_name(made(names((7, b"other"), (0, b"b.example.com")), session=bytes(32))) == "b.example.com"
    )


def test_every_part_of_a_hello_waits_for_the_rest():
    whole = hello()

    for size in range(len(whole)):
        with pytest.raises(Incomplete):
            server_name(whole[:size])
    assert server_name(whole + b"\x14\x03") == "broker.example.com"


@pytest.mark.parametrize("size", [1, 3, 4, 50, 200])
def test_hello_may_be_cut_into_records(size):
    message = hello()[5:]
    records = b"".join(
        struct.pack(">BHH", 22, 0x0301, len(part)) + part
        for part in (message[at:at + size] for at in range(0, len(message), size))
    )

    assert server_name(records) == "broker.example.com"


@pytest.mark.parametrize("octets", [
    b"AMQP\x00\x00\x09\x01", b"\x80" * 100, made(b"", record=23), made(b"", message=2), made(b""),
    made(b"\x00"), made(b"\x00\x00\x00\x09\x00"),
    made(names((0, b"\xff\xfe"))), made(names()), made(names((1, b"x"))),
    made(struct.pack(">HHHBH", 0, 5, 99, 0, 500)),
    b"\x16\x03\x01\x00\x00" * 10, struct.pack(">BHH", 22, 0x0301, 4) + b"\x01\x00\x00\x00",
])
def test_what_is_no_hello_or_has_no_name_asks_for_none(octets):
    assert server_name(octets) == ""


@given(st.binary(max_size=600), st.integers(0, 600))
def test_octets_of_any_kind_do_no_harm(noise, at):
    whole = bytearray(made(names((0, b"broker.example.com")), session=bytes(32)))
    whole[at % len(whole):at % len(whole) + len(noise)] = noise

    try:
        assert isinstance(server_name(bytes(whole)), str)
    except Incomplete:
        pass
