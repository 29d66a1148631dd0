"""Kinds of rows: each row has a number of its own, for as long as it is there."""
from types import SimpleNamespace

import pytest

from gomq_py.http.kinds import CHANNELS, CONNECTIONS, CONSUMERS, QUEUES
from tests.support.no_switch import no_switch

MANY = 2000


def test_channels_have_numbers_of_their_own_wherever_they_lie_and_however_they_are_numbered():
    """Their ids are what tells the addresses apart, so that both together were the same for many."""
    connection = SimpleNamespace(name="127.0.0.1:5000 -> 127.0.0.1:5672")
    channels = [SimpleNamespace(id=1) for _ in range(MANY)]
    for channel in channels:
        channel.id = (1 ^ id(channels[0]) ^ id(channel)) & 0xFFFF

    numbers = CHANNELS.numbers([(channel, connection) for channel in channels])

    assert len(set(numbers)) == MANY


@pytest.mark.parametrize("kind, make", [
    (QUEUES, lambda: SimpleNamespace(name="q")), (CONNECTIONS, lambda: SimpleNamespace(name="a -> b")),
    (CONSUMERS, lambda: (SimpleNamespace(tag="tag"), None)),
])
def test_rows_of_one_name_have_numbers_of_their_own(kind, make):
    rows = [make() for _ in range(MANY)]

    with no_switch():
        numbers = kind.numbers(rows)

    assert len(set(numbers)) == MANY and 0 <= min(numbers) and max(numbers) < 1 << 63


def test_what_comes_to_lie_where_another_has_lain_has_another_number():
    row = SimpleNamespace(name=1)
    (before,) = QUEUES.numbers([row])
    row.name = 2

    assert QUEUES.numbers([row]) != [before]
