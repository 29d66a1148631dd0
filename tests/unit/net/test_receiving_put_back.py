"""Octets that are read once more."""
from gomq_py.net.receiving import PutBack


def test_octets_come_again_in_their_order_and_their_end_is_told_once():
    ends, kept, room = [], [], bytearray(5)
    put_back = PutBack(b"abcdefgh", lambda: ends.append(put_back.pending()), kept.append)

    assert put_back.pending() == 8
    assert put_back.receive_into(memoryview(room)) == 5 and room == b"abcde"
    assert put_back.pending() == 3 and not ends and kept == [8]
    assert put_back.receive_into(memoryview(room)) == 3 and room == b"fghde"
    assert put_back.pending() == 0 and ends == [0] and kept == [8, 0]
