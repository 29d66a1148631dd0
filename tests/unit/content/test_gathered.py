"""A body that comes in parts, with room before it."""
from types import SimpleNamespace

from gomq_py.content.gathered import Gathered


def gathered(at=8, size=10):
    return Gathered(SimpleNamespace(octets=memoryview(bytearray(at + size))), at, size)


def test_parts_are_put_behind_each_other_however_they_come():
    body = gathered()

    body.add(b"abc")
    body.room(4)[:2] = b"de"
    body.came(2)
    body.room(2)[:] = b"fg"
    body.came(2)
    body.add(memoryview(b"hij"))

    assert bytes(body) == b"abcdefghij" and len(body) == body.size == 10


def test_room_is_there_for_what_comes_later_too():
    body = gathered()
    body.add(b"abc")
    body.room(3, ahead=2)[:] = b"fgh"
    body.room(2)[:] = b"de"

    assert body.received == 3
    body.came(5)

    assert bytes(body) == b"abcdefgh" and body.received == 8


def test_what_leads_stands_directly_before_the_body():
    body = gathered()
    body.add(b"abc")

    assert body.lead(b"12345") == 3
    assert bytes(body.octets[3:11]) == b"12345abc"


def test_what_does_not_fit_before_the_body_is_not_written():
    body = gathered(at=4)
    body.add(b"abc")

    assert body.lead(b"12345") == -1
    assert bytes(body.octets[:7]) == bytes(4) + b"abc"
