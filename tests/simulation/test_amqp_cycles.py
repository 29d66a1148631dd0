"""The judge of dead letters that go round: what breaks a promise by hand is found, what is allowed is not."""
import pytest

from tests.simulation.amqp_cycles import CycleLedger
from tests.simulation.book import Book, Held
from tests.simulation.world import World


def ledgers(is_automatic=True):
    world = World(1)
    book = Book(world)
    first, second, third = [
        CycleLedger(world, f"y-{number}", book, is_automatic or number < 2, is_automatic)
        for number in range(3)]
    first.dies_to, second.dies_to, third.dies_to = second, third, first
    book.accept(book.publish(None, [first]))
    world.run(world.now_s + 2, lambda: False)
    return first, second, third


def deaths(ledger, *reasons):
    """It comes to the ledger when it has died for these reasons, the latest first."""
    names = {"0": "y-2", "1": "y-0", "2": "y-1"}
    name, listed = ledger.name, []
    for reason in reasons:
        name = names[name[-1]]
        listed.append({"queue": name, "reason": reason, "count": 1})
    ledger.consumer_connects().take(ledger.book.messages[0], Held(1, "tag", None), False, {
        "x-death": listed, "x-first-death-queue": "y-0", "x-last-death-queue": listed[0]["queue"],
        "x-last-death-reason": reasons[0]})
    return [finding.split(": ", 1)[1] for finding in ledger.world.findings]


@pytest.mark.parametrize("reasons, is_found", [
    (["expired"] * 3, True), (["rejected", "expired", "expired"], False),
    (["expired", "rejected", "expired"], False), (["expired", "expired", "rejected"], False)])
def test_message_that_went_round_by_itself_is_found(reasons, is_found):
    first, _, _ = ledgers()

    assert deaths(first, *reasons) == ["y-0: 0+++ has come round"] * is_found


def test_message_on_its_first_round_may_come():
    _, second, third = ledgers()

    assert deaths(second, "expired") == [] and deaths(third, "expired", "expired") == []


@pytest.mark.parametrize("is_automatic, missing", [(True, set()), (False, {0})])
def test_message_may_be_dropped_only_where_it_dies_in_all_by_itself(is_automatic, missing):
    first, _, _ = ledgers(is_automatic)

    assert first.missing() == missing
