"""Tests of frames: literal bytes (checksums by a CRC of eight lines that is no library's), damage, limits."""
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.cluster.wire import frames
from gomq_py.cluster.wire.frames import (
    ACK, EVENTS, HEARTBEAT, HELLO, LOGIN_MAX_PAYLOAD, MAX_PAYLOAD, Frame, FrameError, FrameReader, encode,
)

FLUSHED = bytes.fromhex(
    "474d5143 01 06 00 00 0000000000000007 0102030405060708 00000001 00000001 ebca4774 08"
)
BEAT = bytes.fromhex(
    "474d5143 01 09 00 00 0000000000000007 000000000000012c 00000000 00000000 99cf2109"
)
# LZ4 (its block format): 1 literal "a", a match of 58 at distance 1, 5 literals.
SQUEEZED = bytes.fromhex(
    "474d5143 01 06 01 00 0000000000000007 000000000000012c 00000040 0000000b b1323f47"
    "1f 61 0100 27 50 6161616161"
)
FRAMES = [
    (FLUSHED, Frame(EVENTS, 7, 0x0102030405060708, b"\x08")),
    (BEAT, Frame(HEARTBEAT, 7, 300, b"")),
    (SQUEEZED, Frame(EVENTS, 7, 300, b"a" * 64)),
]


def castagnoli(octets):
    """CRC-32C, bit by bit."""
    crc = 0xffffffff
    for octet in octets:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def forged(changes=(), payload=b"\x08", raw=None, flags=0):
    """A frame with a right checksum, ``changes`` {octet of the header: value} put in before."""
    raw = len(payload) if raw is None else raw
    head = bytearray(FLUSHED[:24] + raw.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + bytes(4))
    head[6] = flags
    for at, value in dict(changes).items():
        head[at] = value
    head[32:36] = castagnoli(head + payload).to_bytes(4, "big")
    return bytes(head) + payload


def read_all(octets, pieces=(), limit=MAX_PAYLOAD):
    """The frames in ``octets``, cut behind each count of ``pieces``."""
    reader, found, at = FrameReader(limit), [], 0
    for size in (*pieces, len(octets)):
        reader.feed(octets[at:at + size])
        at += size
        while frame := reader.next():
            found.append(frame)
    return found


@pytest.mark.parametrize("octets, frame", FRAMES)
def test_frame_has_these_octets(octets, frame):
    kind, epoch, position, payload = frame

    assert encode(kind, payload, epoch, position, compress=len(payload) > 1) == octets
    assert read_all(octets) == [frame]
    assert castagnoli(octets[:32] + bytes(4) + octets[36:]).to_bytes(4, "big") == octets[32:36]


def test_frames_are_read_byte_by_byte_and_with_others_behind_them():
    stream = b"".join(octets for octets, _ in FRAMES)
    expected = [frame for _, frame in FRAMES]

    assert read_all(stream, [1] * len(stream)) == expected
    assert read_all(stream + FLUSHED[:-1]) == expected


@pytest.mark.parametrize("octets, _", FRAMES)
def test_no_bit_can_be_flipped(octets, _):
    for bit in range(8 * len(octets)):
        flipped = bytearray(octets)
        flipped[bit // 8] ^= 1 << bit % 8

        with pytest.raises(FrameError):
            read_all(bytes(flipped) + bytes(MAX_PAYLOAD))


@pytest.mark.parametrize("octets, text", [
    (b"GET /api/overview HTTP/1.1\r\nHost: localhost", "not a frame of a cluster: it begins with b'GET '"),
    (forged({4: 2}), "version 2 of the cluster protocol is unknown, this is 1"),
    (forged({5: 0}), "unknown kind of frame 0"),
    (forged({5: 200}), "unknown kind of frame 200"),
    (forged({6: 2}), "unknown flags 0x2 in a frame EVENTS"),
    (forged({7: 1}), "byte 7 of a frame EVENTS is not zero"),
    (forged(raw=MAX_PAYLOAD + 1, flags=1), "a frame EVENTS of 1048577 bytes is longer than 1048576"),
    (forged(payload=b"ab", raw=1, flags=1), "a frame EVENTS of 1 bytes is said to be sent as 2"),
    (forged(payload=b"ab", raw=3), "a frame EVENTS of 3 bytes is said to be sent as 2"),
    (FLUSHED[:-1] + b"\x09", "wrong checksum of a frame EVENTS of 1 bytes"),
    (forged(payload=SQUEEZED[36:], raw=63, flags=1), "a payload that should have 63 bytes cannot be decomp"),
    (forged(payload=SQUEEZED[36:], raw=65, flags=1), "a payload has 64 bytes decompressed in place of 65"),
    (forged(payload=b"\xff" * 20, raw=99, flags=1), "a payload that should have 99 bytes cannot be decomp"),
])
def test_what_is_wrong_is_said_and_stays_wrong(octets, text):
    reader = FrameReader()
    reader.feed(octets)

    for _ in range(2):
        with pytest.raises(FrameError) as raised:
            reader.next()
        assert str(raised.value).startswith(text)


def test_lengths_are_refused_before_the_payload_is_there():
    reader = FrameReader(LOGIN_MAX_PAYLOAD)
    reader.feed(forged(payload=bytes(LOGIN_MAX_PAYLOAD + 1))[:36])

    with pytest.raises(FrameError, match="1025 bytes is longer than 1024"):
        reader.next()


def test_limit_holds_for_frames_read_after_it_was_raised():
    reader = FrameReader(LOGIN_MAX_PAYLOAD)
    long = encode(EVENTS, b"x" * 5000)
    reader.feed(encode(HELLO, b"y" * LOGIN_MAX_PAYLOAD) + long)
    assert reader.next().kind == HELLO

    reader.limit = MAX_PAYLOAD

    assert reader.next().payload == b"x" * 5000
    with pytest.raises(FrameError):
        read_all(long, limit=LOGIN_MAX_PAYLOAD)


def test_a_block_that_would_grow_beyond_its_raw_length_is_not_decompressed():
    bomb = frames.lz4_block().compress(bytes(64 << 20), store_size=False)

    with pytest.raises(FrameError, match="cannot be decompressed"):
        read_all(forged(payload=bomb[:1 << 19], raw=MAX_PAYLOAD, flags=1))


def test_payload_of_the_most_octets_is_sent_and_a_longer_one_is_refused():
    assert read_all(encode(ACK, bytes(MAX_PAYLOAD)))[0].payload == bytes(MAX_PAYLOAD)
    with pytest.raises(FrameError, match="1048577 bytes is longer than 1048576"):
        encode(ACK, bytes(MAX_PAYLOAD + 1))


@pytest.mark.parametrize("payload, is_compressed", [
    (b"", False), (b"a", False), (b"a" * 64, True), (bytearray(b"ab" * 500), True),
    (random.Random(1).randbytes(1000), False),
    (random.Random(1).randbytes(900) + bytes(100), False),  # saves less than 1/8
    (random.Random(1).randbytes(800) + bytes(200), True),
])
def test_payload_is_compressed_where_that_saves_an_eighth(payload, is_compressed):
    octets = encode(EVENTS, payload, compress=True)

    assert bool(octets[6]) == is_compressed
    assert read_all(octets)[0].payload == payload


def test_without_lz4_frames_are_sent_raw_and_compressed_ones_refused(monkeypatch):
    monkeypatch.setattr(frames, "lz4_block", lambda: None)

    assert encode(EVENTS, b"a" * 64, compress=True)[6] == 0
    with pytest.raises(FrameError, match=r"install gomq-py\[cluster\]"):
        read_all(SQUEEZED)


KINDS = st.sampled_from(sorted(frames.KINDS))
NUMBERS = st.integers(0, (1 << 64) - 1)
PAYLOADS = st.one_of(
    st.binary(max_size=300), st.builds(lambda octets, count: octets * count, st.binary(), st.integers(0, 99)))


@settings(deadline=None)
@given(
    st.lists(st.tuples(KINDS, PAYLOADS, NUMBERS, NUMBERS, st.booleans()), max_size=5),
    st.lists(st.integers(0, 100), max_size=20),
)
def test_frames_cut_anywhere_are_read_as_they_were_written(written, pieces):
    stream = b"".join(encode(*each) for each in written)

    assert read_all(stream, pieces) == [
        Frame(kind, epoch, position, payload) for kind, payload, epoch, position, _ in written
    ]


@settings(deadline=None)
@given(
    st.binary(max_size=100), st.dictionaries(st.integers(4, 31), st.integers(0, 255), max_size=3),
    st.lists(st.integers(0, 60), max_size=5), st.integers(0, 1),
)
def test_frames_with_any_header_and_a_right_checksum_are_read_or_refused(payload, changes, pieces, flags):
    try:
        found = read_all(forged(changes, payload, flags=flags), pieces, LOGIN_MAX_PAYLOAD)
    except FrameError:
        return
    assert all(frame.kind in frames.KINDS and len(frame.payload) <= LOGIN_MAX_PAYLOAD for frame in found)


@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_octets_are_waited_for_or_refused(octets, with_magic):
    try:
        assert read_all(b"GMQC\x01\x06" * with_magic + octets) == []
    except FrameError:
        pass


def test_leader_accepts_no_compressed_frames():
    reader = FrameReader(decompresses=False)
    reader.feed(FLUSHED + SQUEEZED)

    assert reader.next().payload == b"\x08"
    with pytest.raises(FrameError, match="compressed frames are not expected"):
        reader.next()
