"""The judge of what waits in a delayed exchange that is deleted: what breaks a promise by hand is found."""
import pytest

from tests.simulation.amqp_delays import DelayedLedger
from tests.simulation.book import Book, Held
from tests.simulation.world import World


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def ledger(world):
    """Of a queue for which two messages wait, one of them not for long."""
    ledger = DelayedLedger(world, "d", Book(world))
    for delay_s in (0.001, 2.0):
        ledger.book.accept(ledger.book.publish(None, [ledger], delay_s=delay_s))
    return ledger


def gone(world, ledger, source=None):
    """The exchange is deleted when the first message is due."""
    went = ledger.is_to_go(source)
    world.run(world.now_s + 0.002, lambda: False)
    went()


def take(world, ledger, number):
    world.run(world.now_s + 3, lambda: False)
    ledger.consumer_connects().take(ledger.book.messages[number], Held(1, "tag", None), False)


def test_message_that_comes_though_its_exchange_was_deleted_is_found(world, ledger):
    gone(world, ledger)
    take(world, ledger, 1)

    finding, = world.findings
    assert finding.endswith("d: 1 came, and waited in an exchange that was deleted")


def test_message_that_was_due_before_that_may_come(world, ledger):
    gone(world, ledger)
    take(world, ledger, 0)

    assert not world.findings


def test_message_of_another_connection_may_have_come_to_the_next_exchange(world, ledger):
    gone(world, ledger, "another")
    take(world, ledger, 1)

    assert not world.findings


def test_message_may_be_gone_once_the_exchange_is_to_be_deleted(ledger):
    assert ledger.missing() == {0, 1}

    ledger.is_to_go(None)

    assert not ledger.missing()
