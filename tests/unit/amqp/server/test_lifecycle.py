"""The lives of a handshake, a connection and a channel:
every state is reached, and none but the last is a dead end.
"""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.server.lifecycle import (
    CLOSED, CLOSING, CLOSING_BOTH, CROSSED, ENDED, FAILED, GONE, HANDSHAKE, HEADER, LEFT, OF_CHANNEL,
    OF_CONNECTION, OF_HANDSHAKE, OPEN, RELEASED, REOPENED, STOPPED, moved,
)
from tests.unit.source_tree import PACKAGE

LIVES = [
    (OF_HANDSHAKE, HEADER, {OPEN, LEFT}),
    (OF_CONNECTION, HANDSHAKE, {GONE}),
    (OF_CHANNEL, OPEN, {CLOSED}),
]


@pytest.mark.parametrize("table, first, last", LIVES)
def test_every_state_is_reached_and_only_the_last_ones_are_final(table, first, last):
    states = {first, *table.values(), *(state for state, _ in table)}

    reached, new = set(), {first}
    while new:
        reached |= new
        new = {after for (state, _), after in table.items() if state in reached} - reached

    assert reached == states
    assert states - {state for state, _ in table} == last


@pytest.mark.parametrize("table, events, state", [
    (OF_CONNECTION, [FAILED, STOPPED, ENDED], GONE),
    (OF_CONNECTION, [STOPPED, FAILED], CLOSED),
    (OF_CONNECTION, [ENDED, FAILED, STOPPED], GONE),
    (OF_CHANNEL, [RELEASED, CROSSED, REOPENED], CLOSED),
    (OF_CHANNEL, [RELEASED, REOPENED], CLOSING),
    (OF_CHANNEL, [RELEASED, CROSSED, RELEASED], CLOSING_BOTH),
    (OF_CHANNEL, [RELEASED, ENDED, ENDED], CLOSED),
])
def test_events_lead_from_an_open_one_to(table, events, state):
    one = SimpleNamespace(state=OPEN)

    for event in events:
        moved(one, table, event)

    assert one.state == state


def test_an_event_that_means_nothing_changes_nothing_and_says_so():
    one = SimpleNamespace(state=CLOSED)

    assert not moved(one, OF_CONNECTION, FAILED)
    assert one.state == CLOSED


def test_only_the_tables_change_a_state():
    """But for the first one of each."""
    lines = [
        line.strip()
        for name in ("handshake", "connection", "channel")
        for line in PACKAGE.joinpath("amqp", "server", f"{name}.py").read_text(encoding="utf-8").splitlines()
        if ".state = " in line
    ]

    assert sorted(lines) == ["self.state = HANDSHAKE", "self.state = HEADER", "self.state = OPEN"]
