"""The judges of queues that end, are purged and are deleted: each promise that is broken by hand is found."""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.wire import methods
from tests.simulation.amqp_owners import OwnedLedger, Owner
from tests.simulation.book import Book
from tests.simulation.world import World


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def owner(world):
    """A channel whose queue has ten messages that were confirmed, and a consumer."""
    ledger = OwnedLedger(world, "k", Book(world), "named")
    for _ in range(10):
        ledger.book.accept(ledger.book.publish(None, [ledger]))
    client = SimpleNamespace(
        world=world, name="client", book=ledger.book, random=world.random("client"), is_calm=False,
        is_closing=False, tell=lambda number, method: None, say=lambda what: None, waits=lambda: None,
        heard=lambda: None, expects=set())
    owner = Owner(client, 1, ledger, False, [])
    owner._hand = ledger.consumer_connects()
    owner._is_open = True
    owner._consuming = {"tag": 0}
    return owner


def deliver(owner, *numbers, redelivered=False):
    for number in numbers:
        method = methods.BasicDeliver(
            consumer_tag="tag", delivery_tag=owner._newest + 1, redelivered=redelivered)
        owner.take(method, b"\0\0", owner._book.messages[number].body)


def findings(world):
    return [finding.split(": ", 2)[2] for finding in world.findings]


def test_message_of_an_earlier_life_of_the_queue_is_found(world, owner):
    owner._publishes.end(True)

    deliver(owner, 0)

    assert findings(world) == ["0 came, and its queue was gone"] and not owner._publishes.missing()


def test_message_that_comes_behind_purge_ok_is_found(world, owner):
    owner._purge()
    owner.take(methods.QueuePurgeOk(message_count=10))

    deliver(owner, 0)

    assert findings(world) == ["0 came behind purge-ok"]


def test_purge_takes_all_but_what_is_in_hand_and_what_comes_later(world, owner):
    ledger = owner._publishes
    deliver(owner, 0)
    owner._purge()
    deliver(owner, 1)
    ledger.book.accept(ledger.book.publish(None, [ledger]))

    owner.take(methods.QueuePurgeOk(message_count=8))

    assert ledger.missing() == {0, 1, 10} and not findings(world)


def test_consumer_that_is_not_told_of_the_end_of_its_queue_is_found(world, owner):
    owner._delete()
    owner.take(methods.QueueDeleteOk(message_count=10))
    owner.take(methods.ChannelFlowOk(active=True))

    assert findings(world) == ["was deleted, and nobody told ['tag']"]


def test_consumer_that_is_told_of_an_end_that_was_not_is_found(world, owner):
    owner.take(methods.BasicCancel(consumer_tag="tag"))

    assert findings(world) == ["tag was cancelled, and its queue was not deleted"]


def test_name_that_the_broker_gives_twice_is_found(world, owner):
    for _ in range(2):
        owner._declare_queue(owner._publishes)
        owner.take(methods.QueueDeclareOk(queue="amq.gen-1", message_count=0, consumer_count=0))

    assert findings(world) == ["amq.gen-1 is the name of another queue"]


def test_consumer_that_was_not_answered_yet_ends_its_queue_with_its_channel(owner):
    """Seed 382, on 3a1b338e: the broker has both before it says that the channel is closed."""
    owner._publishes.kind = "auto-delete"
    owner._consume()

    owner._close()
    owner.open = lambda end: None
    for answer in (
            methods.BasicQosOk(), methods.BasicConsumeOk(consumer_tag="tag"), methods.ChannelCloseOk()):
        owner.take(answer)

    assert not owner._publishes.missing()


def test_purge_leaves_what_was_given_back_and_is_on_its_way_again(world, owner):
    """Seed 874, on 3a1b338e: it came while the client was recovering, and went back with what it had."""
    deliver(owner, 0, 1, 2)
    see = owner._hand.give_back([next(iter(owner._hand.held))])
    owner._unseen.append(see)
    owner._purge()
    owner._recover()
    deliver(owner, 0, redelivered=True)
    owner.take(methods.QueuePurgeOk(message_count=7))
    owner.take(methods.BasicRecoverOk())

    deliver(owner, 0, 1, 2, redelivered=True)

    assert findings(world) == []


def test_queue_that_the_broker_names_is_another_in_each_channel(world, owner):
    """Seed 1026, on 3a1b338e: nobody comes back to the one before, and what is in it never comes."""
    owner._declare_queue(owner._publishes)
    owner.take(methods.QueueDeclareOk(queue="amq.gen-1", message_count=0, consumer_count=0))
    assert not owner._publishes.missing()

    deliver(owner, 0)

    assert findings(world) == ["0 came, and its queue was gone"]
