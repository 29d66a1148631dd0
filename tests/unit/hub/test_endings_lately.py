"""Endings lately: a ring of plain values, kept as octets."""
import gc
import sys
from types import SimpleNamespace

from gomq_py.hub.endings_lately import KEPT, TEXT_MAX, EndingsLately, Ring

ONE = SimpleNamespace(
    name="a -> b", vhost=SimpleNamespace(name="/"), user=SimpleNamespace(identity=("guest", False)),
    protocol="AMQP 0-9-1", connected_at=1.5)


def test_the_last_endings_are_kept_with_reasons_that_are_short():
    endings = EndingsLately(unix_s=lambda: 2.0)

    for number in range(KEPT + 1):
        endings.connection(ONE, "x" * 5000, given_name=7)
        endings.channel(ONE, number, ValueError("why"))

    assert len(endings.connections) == len(endings.channels) == KEPT
    assert endings.channels[-1] == {
        "number": 2 * KEPT + 2, "what": "channel", "name": "a -> b", "vhost": "/", "user": ("guest", False),
        "closed_at": 2000, "reason": "why", "channel": KEPT,
    }
    assert (len(endings.connections[0]["reason"]), endings.connections[0]["user_provided_name"]) == (
        TEXT_MAX, None)


def test_a_ring_keeps_the_last_values_whatever_is_in_them():
    ring = Ring(3)
    assert ring.all() == []

    for text in ("first", "\udc80 is no UTF-8", "", "three\nlines\r", "\U0001f407" * 500):
        ring.add({"text": text, "number": 1 << 40, "none": None})

    assert [one["text"] for one in ring.all()] == ["", "three\nlines\r", "\U0001f407" * 500]
    assert ring.all()[0] == {"text": "", "number": 1 << 40, "none": None}


def test_no_object_of_a_connection_is_kept():
    """One holds the arena that it lies in, which could be given back to the system."""
    endings, name = EndingsLately(), "of the client " * 5
    gone = SimpleNamespace(**{**vars(ONE), "name": name})
    references, tracked = sys.getrefcount(name), len(gc.get_objects())

    for number in range(2 * KEPT):
        endings.connection(gone, "why")
        endings.channel(gone, number, "why")

    assert sys.getrefcount(name) == references
    assert len(gc.get_objects()) < tracked + KEPT // 2
