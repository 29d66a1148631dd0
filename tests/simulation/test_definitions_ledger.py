"""The judge of what HTTP clients were answered: each promise that is broken by hand is found."""
from base64 import b64encode

import pytest

from tests.simulation.definitions_ledger import KINDS, DefinitionsLedger
from tests.simulation.world import World

QUEUE, EXCHANGE, BINDING = ("queue", "h-q1"), ("exchange", "h-e1"), ("binding", "h-e1", "h-q1", "a")


@pytest.fixture
def ledger():
    """A queue and an exchange that were answered."""
    ledger = DefinitionsLedger(World(1), "h")
    change(ledger, {QUEUE: 1, EXCHANGE: "topic"})
    return ledger


def change(ledger, changes):
    ledger.ask(changes)
    ledger.answer(changes)


def findings(ledger, shown):
    """What it says of an export of these."""
    definitions = {kind.list: [] for kind in KINDS.values()}
    for (name, *names), value in shown.items():
        kind = KINDS[name]
        definitions[kind.list].append({**kind.fields(*names), **kind.body(value, *names)})
    ledger.check(definitions)
    return [finding.split(": h: ", 1)[1] for finding in ledger.world.findings]


def test_what_was_answered_is_there(ledger):
    assert findings(ledger, {QUEUE: 1, EXCHANGE: "topic"}) == []


@pytest.mark.parametrize("shown, finding", [
    ({EXCHANGE: "topic"}, "queue h-q1 is None and was answered ['1']"),
    ({QUEUE: 2, EXCHANGE: "topic"}, "queue h-q1 is 2 and was answered ['1']"),
    ({QUEUE: 1, EXCHANGE: "topic", ("queue", "h-q2"): 1}, "queue h-q2 is 1 and was answered ['None']"),
])
def test_what_is_not_as_it_was_answered_is_found(ledger, shown, finding):
    assert findings(ledger, shown) == [finding]


def test_deleted_thing_that_is_there_is_found(ledger):
    change(ledger, {QUEUE: None})

    assert findings(ledger, {QUEUE: 1, EXCHANGE: "topic"}) == ["queue h-q1 is 1 and was answered ['None']"]


@pytest.mark.parametrize("shown", [{QUEUE: 1}, {}])
def test_change_that_was_not_answered_may_be_made_or_not(ledger, shown):
    ledger.ask({QUEUE: None})
    ledger.is_unanswered()

    assert findings(ledger, {EXCHANGE: "topic", **shown}) == []
    assert not ledger.is_known(QUEUE) and not ledger.is_known(BINDING)


def test_binding_goes_with_its_queue_even_if_its_own_change_was_not_answered(ledger):
    change(ledger, {BINDING: True})
    ledger.ask({BINDING: True})
    ledger.is_unanswered()
    change(ledger, dict.fromkeys([QUEUE, *ledger.hang_on(QUEUE)]))

    assert findings(ledger, {EXCHANGE: "topic"}) == []


def test_message_that_comes_back_after_a_purge_is_found(ledger):
    number, body = ledger.publish()
    ledger.accept(number)
    ledger.purge()

    ledger.take([{"payload": b64encode(body)}])

    finding, = ledger.world.findings
    assert finding.endswith(" s: h: 0 came, and was purged before")
