"""Endings lately: a ring of plain values."""
from types import SimpleNamespace

from gomq_py.hub.endings_lately import KEPT, TEXT_MAX, EndingsLately

ONE = SimpleNamespace(
    name="a -> b", vhost=SimpleNamespace(name="/"), user=SimpleNamespace(name="guest"), protocol="AMQP 0-9-1",
    connected_at=1.5)


def test_the_last_endings_are_kept_with_reasons_that_are_short():
    endings = EndingsLately(unix_s=lambda: 2.0)

    for number in range(KEPT + 1):
        endings.connection(ONE, "x" * 5000, given_name=7)
        endings.channel(ONE, number, ValueError("why"))

    assert len(endings.connections) == len(endings.channels) == KEPT
    assert endings.channels[-1] == {
        "number": 2 * KEPT + 2, "what": "channel", "name": "a -> b", "vhost": "/", "user": "guest",
        "closed_at": 2000, "reason": "why", "channel": KEPT,
    }
    assert (len(endings.connections[0]["reason"]), endings.connections[0]["user_provided_name"]) == (
        TEXT_MAX, None)
