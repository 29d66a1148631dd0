"""Tests of messages: literal bytes, and what is malformed."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.cluster.wire.frames import LOGIN_MAX_PAYLOAD
from gomq_py.cluster.wire.messages import (
    NO_ID, Ack, Challenge, Forward, Hashes, Heartbeat, Hello, MessageError, Proof, Refused, Welcome,
    block_digest,
)
from gomq_py.octets import crc32c

MESSAGES = [
    (
        "6e" * 16 + "63" * 16 + "0000000000000004" + "72" * 16 + "000000000000012c" + "0d" * 32 + "c3bc2d31",
        Hello(b"n" * 16, b"c" * 16, 4, b"r" * 16, 300, b"\r" * 32, "ü-1"),
    ),
    ("63" * 16 + "0000000000000005" + "72" * 16 + "0c" * 32, Challenge(b"c" * 16, 5, b"r" * 16, b"\f" * 32)),
    ("07" * 32, Proof(b"\a" * 32)),
    ("07" * 32 + "01", Welcome(b"\a" * 32, True)),
    ("07" * 32 + "00", Welcome(b"\a" * 32, False)),
    ("6e6f", Refused("no")),
    ("0000000000000009 00000002 00000000e3069283 0000000000000000", Hashes(9, (0xe3069283, 0))),
    ("0000000000000009 00000000", Hashes(9, ())),
    ("0000000000000102 0000000000000101 0000000000000100", Ack(258, 257, 256)),
    ("0000000000000102", Heartbeat(258)),
    (
        "6e" * 16 + "63" * 16 + "0000000000000004" + "0d" * 32 + "016e 05 616d717073 70",
        Forward(b"n" * 16, b"c" * 16, 4, b"\r" * 32, "n", "amqps", b"p"),
    ),
]


@pytest.mark.parametrize("octets, message", MESSAGES)
def test_message_has_these_octets(octets, message):
    assert message.encode() == bytes.fromhex(octets)
    assert type(message).decode(bytes.fromhex(octets)) == message


@pytest.mark.parametrize("octets, message", [
    (octets, message) for octets, message in MESSAGES
    if type(message) not in (Hello, Heartbeat, Refused, Forward)
])
def test_message_of_another_length_is_malformed(octets, message):
    octets = bytes.fromhex(octets)

    for wrong in (*(octets[:length] for length in range(len(octets))), octets + b"\0"):
        with pytest.raises(MessageError, match=f"has {len(wrong)} bytes"):
            type(message).decode(wrong)


@pytest.mark.parametrize("name, text", [
    (b"", "a HELLO has 96 bytes"), (b"x" * 256, "a HELLO has 352 bytes"),
    (b"\xff", "the name of a node is not printable UTF-8"),
    (b"a\nb", "the name of a node is not printable UTF-8"),
])
def test_name_of_a_node_is_short_and_printable(name, text):
    with pytest.raises(MessageError) as raised:
        Hello.decode(bytes(96) + name)

    assert str(raised.value) == text


@pytest.mark.parametrize("behind, text", [
    (b"", "has 72 bytes"), (b"\0", "has 73 bytes"), (b"\1n", "has 74 bytes"), (b"\1n\0", "has 75 bytes"),
    (b"\1n\2a", "has 76 bytes"), (b"\1n\1/", "names the listener b'/'"),
    (b"\1\xff\1a", "the name of a node is not printable"),
])
def test_forward_with_wrong_names_is_malformed(behind, text):
    with pytest.raises(MessageError, match=text):
        Forward.decode(bytes(72) + behind)


def test_hello_that_is_cut_short_is_malformed():
    for length in range(97):
        with pytest.raises(MessageError):
            Hello.decode(bytes(length))


def test_hello_with_the_longest_name_fits_before_the_login():
    assert len(Hello(NO_ID, NO_ID, 0, NO_ID, 0, bytes(32), "x" * 255).encode()) <= LOGIN_MAX_PAYLOAD


def test_text_of_a_refusal_is_cut():
    assert Refused("ü" * 999).encode() == "ü".encode() * 256
    assert Refused.decode(b"a" * 1000).text == "a" * 512
    assert Refused.decode(b"\xff").text == "\ufffd"
    assert Refused("\udcff").encode() == b"?"


def test_welcome_says_0_to_7():
    with pytest.raises(MessageError, match="a WELCOME says 8 in place of 0 to 7"):
        Welcome.decode(bytes(32) + b"\x08")


def test_ack_cannot_flush_more_than_was_received():
    with pytest.raises(MessageError, match="an ACK says 2 are flushed of 1 received, 0 noted"):
        Ack.decode(bytes.fromhex("0000000000000001 0000000000000002 0000000000000000"))
    with pytest.raises(MessageError, match="an ACK says 1 are flushed of 1 received, 2 noted"):
        Ack.decode(bytes.fromhex("0000000000000001 0000000000000001 0000000000000002"))


def test_heartbeat_may_lack_the_clock():
    assert Heartbeat.decode(b"") == Heartbeat(None) and Heartbeat(None).encode() == b""
    with pytest.raises(MessageError, match="a HEARTBEAT has 7 bytes"):
        Heartbeat.decode(bytes(7))


def test_hashes_of_a_count_that_is_not_there_are_malformed():
    with pytest.raises(MessageError, match="a HASHES of 4294967295 blocks has 12 bytes"):
        Hashes.decode(bytes(8) + b"\xff" * 4)


def test_leader_takes_as_many_checksums_as_the_file_has_blocks():
    payload = Hashes(9, (1, 2)).encode()

    assert Hashes.decode(payload, {9: 2}.get) == (9, (1, 2))
    assert Hashes.decode(payload, {8: 2}.get) == (9, ()), "nobody waits for these"
    with pytest.raises(MessageError, match="a HASHES has 2 checksums of a file of 1 blocks"):
        Hashes.decode(payload, {9: 1}.get)


@settings(deadline=None)
@given(
    st.sampled_from([Hello, Challenge, Proof, Welcome, Refused, Hashes, Heartbeat, Ack, Forward]),
    st.binary(max_size=400), st.sampled_from([0, 12, 16, 32, 33, 72, 97]),
)
def test_any_payload_is_a_message_or_malformed(kind, payload, size):
    payload = payload.ljust(size, b"\0")
    try:
        message = kind.decode(payload)
    except MessageError:
        return
    assert message == kind.decode(message.encode())


def test_block_of_records_with_checksums_of_their_own_has_another_digest():
    """One valid entry of acks in another's place: the CRC-32C of the block stays."""
    one, other = (octets + crc32c(0, octets, 0, 4).to_bytes(4, "little") for octets in (b"1234", b"1235"))
    blocks = [bytes(80) + entry + bytes(40) for entry in (one, other)]

    assert crc32c(0, blocks[0], 0, 128) == crc32c(0, blocks[1], 0, 128)
    assert block_digest(blocks[0]) != block_digest(blocks[1])
