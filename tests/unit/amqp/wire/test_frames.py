"""Frames: literal octets, the reader fed whole, byte by byte and with trailing bytes, limits, and fuzz; the
fields of methods: each kind alone, cut short and with octets behind it. Methods are in test_methods.
"""
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.amqp.wire.errors import FrameError, UnexpectedFrame
from gomq_py.amqp.wire.frames import (
    BIT, HEARTBEAT_FRAME, LONG, LONGLONG, LONGSTR, OCTET, SHORT, SHORTSTR, TABLE, FrameReader, content_frames,
    decode_header, frame, header_payload, method_frame, read_fields,
)
from gomq_py.amqp.wire.methods import BasicPublish, ChannelCloseOk
from gomq_py.errors import Malformed

METHOD = b"\x01\x00\x05\x00\x00\x00\x04\x00\x14\x00\x29\xce"  # channel.close-ok on channel 5
BODY = b"\x03\xff\xff\x00\x00\x00\x03abc\xce"
EMPTY_BODY = b"\x03\x00\x01\x00\x00\x00\x00\xce"
STREAM = METHOD + BODY + HEARTBEAT_FRAME + EMPTY_BODY
EACH = [
    (OCTET, b"\xfe", 254), (SHORT, b"\xfe\x01", 0xFE01), (LONG, b"\xfe\0\0\1", 0xFE000001),
    (LONGLONG, b"\xfe\0\0\0\0\0\0\1", 0xFE00000000000001), (BIT, b"\x01", True), (BIT, b"\xfe", False),
    (SHORTSTR, b"\x03a\xc3\xb6", "a\u00f6"), (SHORTSTR, b"\0", ""), (LONGSTR, b"\0\0\0\2\xff\0", b"\xff\0"),
    (TABLE, b"\0\0\0\4\1at\1", {"a": True}),
]
FRAMES = [(1, 5, b"\x00\x14\x00\x29"), (3, 65535, b"abc"), (8, 0, b""), (3, 1, b"")]


def all_frames(reader):
    return list(iter(reader.next_frame, None))


def test_frames_fed_whole_come_out_in_order():
    reader = FrameReader(4096)

    reader.feed(STREAM)

    assert all_frames(reader) == FRAMES


def test_frames_fed_byte_by_byte_come_out_at_their_last_octet():
    reader = FrameReader(4096)
    frames = []

    for octet in STREAM:
        reader.feed(bytes((octet,)))
        frames += all_frames(reader)

    assert frames == FRAMES


@pytest.mark.parametrize("length", range(len(METHOD)))
def test_an_incomplete_frame_behind_whole_ones_waits_for_the_rest(length):
    reader = FrameReader(4096)

    reader.feed(BODY + METHOD[:length])
    before = all_frames(reader)
    reader.feed(METHOD[length:] + b"\x01")

    assert before == [FRAMES[1]]
    assert all_frames(reader) == [FRAMES[0]]


def test_the_reader_takes_any_bytes_like_octets():
    reader = FrameReader(4096)

    reader.feed(memoryview(METHOD))
    reader.feed(bytearray(BODY))

    assert all_frames(reader) == FRAMES[:2]


def test_a_wrong_end_octet_is_a_frame_error():
    reader = FrameReader(4096)
    reader.feed(METHOD[:-1] + b"\x00")

    with pytest.raises(FrameError, match="type 1 frame on channel 5 ends with byte 0 instead of 206"):
        reader.next_frame()


@pytest.mark.parametrize("kind", [0, 4, 5, 6, 7, 9, 65, 255])
def test_an_unknown_frame_type_is_a_frame_error_before_its_payload_is_there(kind):
    reader = FrameReader(4096)
    reader.feed(bytes((kind,)) + METHOD[1:7])

    with pytest.raises(FrameError, match=f"unknown frame type {kind}"):
        reader.next_frame()


@pytest.mark.parametrize("size", [4097, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_frame_over_frame_max_is_refused_by_its_head_alone(size):
    reader = FrameReader(4096)
    reader.feed(b"\x03\x00\x01" + size.to_bytes(4, "big"))

    with pytest.raises(FrameError, match=f"payload of {size} bytes, negotiated frame_max is 4096"):
        reader.next_frame()


def test_a_payload_of_exactly_frame_max_is_let_pass():
    reader = FrameReader(4096)

    reader.feed(frame(3, 1, bytes(4096)))

    assert reader.next_frame() == (3, 1, bytes(4096))


def test_without_frame_max_a_frame_may_have_any_size():
    reader = FrameReader(0)

    reader.feed(frame(3, 1, bytes(200000)))

    assert reader.next_frame() == (3, 1, bytes(200000))


def test_a_method_is_framed_with_its_channel():
    assert method_frame(5, ChannelCloseOk()) == METHOD


def test_a_message_is_a_header_frame_and_a_body_frame():
    assert content_frames(1, b"\x10\x00\x02", b"hello", 4096) == (
        b"\x02\x00\x01\x00\x00\x00\x0f\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x10\x00\x02\xce"
        b"\x03\x00\x01\x00\x00\x00\x05hello\xce"
    )


def test_an_empty_message_has_no_body_frame():
    assert content_frames(
        1, b"\x00\x00", b"", 4096
    ) == b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + bytes(10) + b"\xce"


@pytest.mark.parametrize(("size", "sizes"), [
    (4088, [4088]), (4089, [4088, 1]), (8176, [4088, 4088]), (8177, [4088, 4088, 1])
])
def test_a_body_is_cut_to_frames_of_at_most_frame_max_octets(size, sizes):
    body = bytes(range(256)) * 32
    reader = FrameReader(4088)  # a payload over 4088 would make the frame larger than 4096

    reader.feed(content_frames(1, b"\x00\x00", body[:size], 4096))
    header, *bodies = all_frames(reader)

    assert decode_header(header[2])[1] == size
    assert [len(payload) for _, _, payload in bodies] == sizes
    assert b"".join(payload for _, _, payload in bodies) == body[:size]


def test_without_frame_max_a_body_is_one_frame():
    reader = FrameReader(0)

    reader.feed(content_frames(1, b"\x00\x00", bytes(300000), 0))

    assert [len(payload) for _, _, payload in all_frames(reader)] == [14, 300000]


def test_a_header_payload_comes_apart_again():
    assert decode_header(header_payload(b"\x10\x00\x02", 2**40)) == (60, 2**40, b"\x10\x00\x02")


@pytest.mark.parametrize("length", range(12))
def test_a_header_cut_short_is_refused(length):
    with pytest.raises(FrameError):
        decode_header(header_payload(b"\x00\x00", 5)[:length])


def test_a_header_with_a_weight_is_refused():
    with pytest.raises(UnexpectedFrame):
        decode_header(b"\x00\x3c\x00\x01" + bytes(10))


def test_a_publish_is_three_frames_of_literal_octets():
    octets = method_frame(1, BasicPublish(exchange="x", routing_key="key", mandatory=True)) + content_frames(
        1, b"\x00\x00", b"!", 4096
    )

    assert octets == (
        b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x28\x00\x00\x01x\x03key\x01\xce"
        b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\xce"
        b"\x03\x00\x01\x00\x00\x00\x01!\xce"
    )


@given(
    st.lists(
        st.tuples(st.sampled_from((1, 2, 3, 8)), st.integers(0, 65535), st.binary(max_size=40)), max_size=8
    ),
    st.data(),
)
def test_any_frames_cut_at_any_points_come_out_whole(frames, data):
    octets = b"".join(frame(*parts) for parts in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=6)))
    reader = FrameReader(4096)
    received = []

    for start, end in zip([0, *cuts], [*cuts, len(octets)]):
        reader.feed(octets[start:end])
        received += all_frames(reader)

    assert received == frames


@settings(max_examples=500)
@given(st.lists(st.binary(max_size=30), max_size=6))
def test_any_octets_are_frames_or_refused(pieces):
    reader = FrameReader(64)
    fed = taken = 0

    try:
        for piece in pieces:
            reader.feed(piece)
            fed += len(piece)
            taken += sum(8 + len(payload) for _, _, payload in all_frames(reader))
    except FrameError:
        pass

    assert taken <= fed


def read(kinds, data, any_octets=False):
    """(whether they fill the octets, what was read)."""
    method = SimpleNamespace()
    return read_fields(method, kinds, data, 4, any_octets), vars(method)


@pytest.mark.parametrize(("kind", "octets", "value"), EACH)
def test_each_kind_is_read(kind, octets, value):
    assert read((("x", kind),), b"head" + octets) == (True, {"x": value})
    is_whole, given = read((("x", kind), ("y", SHORT)), b"head" + octets + b"\1\2")
    assert is_whole and given == {"x": value, "y": 0x0102}
    assert type(given["x"]) is type(value)


@pytest.mark.parametrize(("kind", "octets", "value"), EACH)
def test_what_is_cut_short_or_has_octets_behind_it_does_not_fill(kind, octets, value):
    for length in range(len(octets)):
        try:
            assert not read((("x", kind),), b"head" + octets[:length])[0]
        except Malformed:
            assert kind is TABLE
    assert not read((("x", kind),), b"head" + octets + b"\0")[0]


def test_bits_share_octets_until_another_kind_comes():
    kinds = tuple((f"b{number}", BIT) for number in range(9)) + (("n", OCTET), ("last", BIT))

    is_whole, given = read(kinds, b"head\x81\x01\x07\x01")

    assert is_whole
    assert [given[f"b{number}"] for number in range(9)] == [True, *[False] * 6, True, True]
    assert given["n"] == 7 and given["last"] is True


def test_short_strings_may_be_any_octets_where_that_is_said():
    with pytest.raises(UnicodeDecodeError):
        read((("x", SHORTSTR),), b"head\x01\xff")

    assert read((("x", SHORTSTR),), b"head\x01\xff", True) == (True, {"x": "\udcff"})
