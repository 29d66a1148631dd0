"""Batches: slices of whole messages, and what is stamped where."""
import socket
from types import SimpleNamespace

import pytest

from gomq_py.perf.walk import END_OF_RECORD, PublishBatch


def messages(*bodies, head=b"HEAD", tail=b"END"):
    return [(head + body + tail, len(head)) for body in bodies]


def test_messages_lie_one_behind_the_other():
    batch = PublishBatch(messages(b"a", b"bcd"))

    assert bytes(batch.buffer) == b"HEADaENDHEADbcdEND"
    assert (batch.count, list(batch.starts)) == (2, [0, 8, 18])


def test_numbers_and_one_timestamp_are_stamped_little_endian():
    batch = PublishBatch(messages(bytes(17), bytes(17), bytes(17)), timestamp_at=0, sequence_at=8)

    batch.stamp(1, 3, 258, 5)

    assert bytes(batch.buffer[:24]) == b"HEAD" + bytes(17) + b"END"
    assert bytes(batch.buffer[24:48]) == b"HEAD" + b"\x05" + bytes(7) + b"\x02\x01" + bytes(6) + b"\x00END"
    assert bytes(batch.buffer[48:72]) == b"HEAD" + b"\x05" + bytes(7) + b"\x03\x01" + bytes(6) + b"\x00END"


def test_without_places_nothing_is_stamped():
    batch = PublishBatch(messages(b"ab"))

    batch.stamp(0, 1, 1, 1)

    assert bytes(batch.buffer) == b"HEADabEND"


def test_only_the_number_may_be_stamped():
    batch = PublishBatch(messages(bytes(8), tail=b""), sequence_at=0)

    batch.stamp(0, 1, 7 << 48 | 1, 99)

    assert bytes(batch.buffer) == b"HEAD\x01" + bytes(5) + b"\x07\x00"


@pytest.mark.parametrize(("first", "last"), [(-1, 1), (0, 3), (2, 3)])
def test_messages_outside_the_batch_are_not_stamped(first, last):
    with pytest.raises(IndexError):
        PublishBatch(messages(bytes(8), bytes(8)), sequence_at=0).stamp(first, last, 1, 1)


def test_a_body_too_small_for_its_stamps_is_refused():
    with pytest.raises(ValueError):
        PublishBatch(messages(bytes(4), tail=b""), sequence_at=0)


@pytest.mark.parametrize(("first", "limit", "last"), [
    (0, 8, 1), (0, 15, 1), (0, 16, 2), (0, 100, 4), (1, 16, 3), (3, 1, 4), (0, 0, 1)
])
def test_a_slice_is_the_longest_run_of_whole_messages_within_a_limit_but_at_least_one(first, limit, last):
    batch = PublishBatch(messages(b"a", b"b", b"c", b"d"))  # 8 octets each

    assert batch.last_within(first, limit) == last


def test_messages_are_written_one_by_one():
    batch = PublishBatch(messages(b"a", b"b", b"c"))
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps each write apart
    with near, far:
        assert batch.write_singly(near, 1, 3, END_OF_RECORD) == (2, 0)
        assert [far.recv(100), far.recv(100)] == [b"HEADbEND", b"HEADcEND"]


@pytest.mark.parametrize("flags", [0, END_OF_RECORD])
def test_each_write_has_the_flags_that_it_is_given(flags):
    batch = PublishBatch(messages(b"a", b"b"))
    heard = []
    near = SimpleNamespace(send=lambda view, flags: heard.append((bytes(view), flags)) or len(view))

    batch.write_singly(near, 0, 2, flags)

    assert heard == [(b"HEADaEND", flags), (b"HEADbEND", flags)]


def test_writing_one_by_one_stops_where_the_socket_is_full():
    batch = PublishBatch(messages(*[bytes(50000)] * 40))
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        count, missing = batch.write_singly(near, 0, 40, END_OF_RECORD)
        again = batch.write_singly(near, 0, 40, END_OF_RECORD)
        octets = bytearray()
        while len(octets) < count * 50007 - missing:
            octets += far.recv(1 << 20)

    assert 0 < count < 40
    assert again == (0, 0)
    assert octets == bytes(batch.buffer[:count * 50007 - missing])


@pytest.mark.parametrize("is_blocking", [False, True])
def test_messages_are_written_one_by_one_whether_or_not_the_socket_waits(is_blocking):
    """What does not wait is written to without Python's sockets where this is compiled."""
    batch = PublishBatch(messages(b"a", b"b", b"c"))
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        near.setblocking(is_blocking)
        assert batch.write_singly(near, 1, 3, END_OF_RECORD) == (2, 0)
        assert [far.recv(100), far.recv(100)] == [b"HEADbEND", b"HEADcEND"]


@pytest.mark.parametrize("is_blocking", [False, True])
def test_writing_one_by_one_to_nobody_says_why(is_blocking):
    batch = PublishBatch(messages(b"a", b"b"))
    near, far = socket.socketpair()
    with near:
        near.setblocking(is_blocking)
        far.close()
        with pytest.raises(BrokenPipeError):
            batch.write_singly(near, 0, 2, 0)


def test_messages_written_one_by_one_are_segments_of_their_own_even_when_nobody_reads():
    batch = PublishBatch(messages(*[bytes(40)] * 500))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(
        listener.getsockname()
    ) as near:
        near.setblocking(False)
        count = batch.write_singly(near, 0, 500, END_OF_RECORD)[0]
        with listener.accept()[0] as far:
            missing = count * 47
            while missing:
                missing -= len(far.recv(missing))
        told = near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        # tcpi_data_segs_out, tcpi_total_retrans
        segments, again = (int.from_bytes(told[at:at + 4], "little") for at in (156, 100))

    assert segments - again == count > 100


def test_packet_identifiers_are_written_before_the_bodies_and_go_round():
    batch = PublishBatch([(b"head\0\0body", 6), (b"h\0\0b", 3), (b"\0\0", 2)], identifier_before=2)

    batch.identify(0, 3, 65534)

    assert bytes(batch.buffer) == b"head\xff\xfebody" + b"h\xff\xffb" + b"\0\1"


@pytest.mark.parametrize("span", [(-1, 1), (0, 2)])
def test_identifiers_outside_the_batch_are_refused(span):
    with pytest.raises(IndexError):
        PublishBatch([(b"\0\0x", 2)], identifier_before=2).identify(*span, 1)


def test_bodies_without_room_for_an_identifier_are_refused():
    with pytest.raises(ValueError, match="no room for a packet identifier"):
        PublishBatch([(b"\0x", 1)], identifier_before=2)
