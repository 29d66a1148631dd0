"""The judges of queues with limits: what breaks a promise by hand is found, and what is allowed is not."""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.wire import methods
from tests.simulation.amqp_limits import LimitedConsumer, LimitedLedger, LimitedPublisher
from tests.simulation.book import Book, Copy, Held
from tests.simulation.queue_ledger import QueueLedger
from tests.simulation.world import World


@pytest.fixture
def world():
    return World(1)


def limited(world, *traits, sizes=(400,) * 20, letters=None, **what):
    """The ledger of a queue with messages that were confirmed."""
    ledger = LimitedLedger(world, "l", Book(world), traits, dies_to=letters)
    for size in sizes:
        ledger.book.accept(ledger.book.publish(None, [ledger], size=size, **what))
    return ledger


def end(ledger, is_orderly):
    if is_orderly:
        ledger.book.orderly.add(ledger.ends)
    ledger.book.ends += 1
    ledger.process_ended()


def take(ledger, number, hand=None, redelivered=False):
    hand = hand or ledger.consumer_connects()
    hand.take(ledger.book.messages[number], Held(1, "tag", None), redelivered)
    return hand


def findings(world):
    return [finding.split(": ", 1)[1].removeprefix("l: ") for finding in world.findings]


@pytest.mark.parametrize("trait, stay", [("short", 10), ("narrow", 12)])
def test_message_is_dropped_only_where_enough_came_behind_it(world, trait, stay):
    ledger = limited(world, trait)

    assert ledger.missing() == set(range(20 - stay, 20))


def test_message_that_was_not_answered_may_have_come_behind_a_later_one(world):
    ledger = limited(world, "short", sizes=())
    early = [ledger.book.publish(None, [ledger], size=400) for _ in range(5)]
    late = [ledger.book.publish("another", [ledger], size=400) for _ in range(6)]

    for message in late + early:
        ledger.book.accept(message)

    assert ledger.missing() == {message.number for message in early[1:] + late[1:]}


def test_message_that_is_larger_than_all_that_fits_may_be_dropped_at_once(world):
    assert limited(world, "narrow", sizes=(400, 6000)).missing() == set()


def test_dead_letter_that_was_not_too_much_is_found(world):
    ledger = limited(world, "narrow", "letters")
    letters = ledger.dies_to = QueueLedger(world, "letters", ledger.book)

    for number in (7, 8):
        letters.consumer_connects().take(ledger.book.messages[number], Held(1, "tag", None), False, {
            "x-death": [{"count": 1}], "x-first-death-queue": "l", "x-last-death-queue": "l",
            "x-last-death-reason": "maxlen"})

    assert findings(world) == ["letters: 8+ is said to have been too much in l"]


@pytest.mark.parametrize("traits, settled, is_found", [
    (("refusing",), 0, False), (("refusing",), 10, True), (("brimful",), 7, False), (("brimful",), 9, True),
    (("passing on",), 10, True), (("short",), 0, True)])
def test_refusal_where_there_was_room_is_found(world, traits, settled, is_found):
    ledger = limited(world, *traits)
    ledger.settle([Copy(number) for number in range(settled)], ledger.consumer_connects())

    ledger.refuse(ledger.book.messages[19])

    assert findings(world) == ["19 was refused, and there was room"] * is_found


def test_refusal_is_judged_by_what_was_there_when_it_was_published(world):
    ledger = limited(world, "refusing")
    refused = ledger.book.messages[19]
    refused.published_s -= 1
    ledger.settle([Copy(number) for number in range(10)], ledger.consumer_connects())

    ledger.refuse(refused)

    assert findings(world) == []


def test_refusal_of_an_ill_disk_and_one_that_is_read_late_say_nothing(world):
    ledger = limited(world, "refusing", sizes=(400,))
    ledger.disk_is_ill(True)
    ledger.refuse(ledger.book.messages[0])
    end(ledger, False)
    ledger.refuse(ledger.book.messages[0])

    assert findings(world) == []


def test_message_that_was_refused_and_comes_is_found(world):
    ledger = limited(world, "refusing")
    ledger.refuse(ledger.book.messages[19])

    take(ledger, 19)

    assert findings(world) == ["19 came, and was refused"]


def test_refused_message_has_to_be_a_dead_letter_until_a_kill(world):
    ledger = limited(world, "passing on", letters=QueueLedger(world, "letters", Book(world)))
    message = ledger.book.publish(None, [ledger], size=400)
    ledger.refuse(message)
    assert message.number in ledger.missing()

    end(ledger, False)

    assert message.number not in ledger.missing()


@pytest.mark.parametrize("trait, most", [("short", 10), ("narrow", 12), ("refusing", 10), ("brimful", 12)])
def test_more_ready_messages_than_there_may_be_are_found(world, trait, most):
    ledger = limited(world, trait)

    ledger.check_length(most)
    ledger.check_length(most + 1)

    assert findings(world) == [f"{most + 1} messages are ready"]


@pytest.mark.parametrize("trait, number, is_found", [
    ("short", 9, True), ("short", 10, False), ("narrow", 7, True), ("narrow", 8, False)])
def test_message_that_comes_though_too_much_was_behind_it_is_found(world, trait, number, is_found):
    ledger = limited(world, trait)
    world.run(world.now_s + 0.2, lambda: False)

    take(ledger, number)

    assert bool(findings(world)) is is_found


def test_message_that_is_too_large_may_come_to_a_consumer_that_waits(world):
    ledger = limited(world, "narrow", sizes=(6000,))

    take(ledger, 0)

    assert findings(world) == []


def test_queue_that_refuses_has_room_for_what_comes_back(world):
    ledger = limited(world, "refusing")
    take(ledger, 0).leave()

    ledger.check_length(11)

    assert findings(world) == []


def test_message_that_was_too_old_when_its_consumer_came_is_found(world):
    ledger = limited(world, "expiring")
    world.run(world.now_s + 0.2, lambda: False)
    take(ledger, 0)
    world.run(world.now_s + 0.2, lambda: False)

    take(ledger, 1)

    assert findings(world) == ["1 came, and had expired"]


def test_message_that_may_not_wait_and_comes_back_is_found(world):
    ledger = limited(world, "at once")
    hand = take(ledger, 0)
    hand.give_back([Copy(0)])

    take(ledger, 0, hand, redelivered=True)

    assert findings(world) == ["0 came again, and may not wait"]


@pytest.mark.parametrize("is_transient, is_orderly, is_found", [
    (True, True, True), (True, False, False), (False, False, True)])
def test_transient_message_may_be_lost_by_a_kill_alone(world, is_transient, is_orderly, is_found):
    ledger = limited(world, "transient", sizes=(400,), is_transient=is_transient)
    end(ledger, is_orderly)

    assert bool(ledger.missing()) is is_found


def channel_of(world, kind, ledger):
    client = SimpleNamespace(
        world=world, name="client", book=ledger.book, random=world.random("client"), is_calm=False,
        is_closing=False, say=lambda what: None, heard=lambda: None)
    return kind(client, 1, ledger, ledger, False, False, [])


def test_publisher_tells_of_what_is_refused(world):
    ledger = limited(world, "short")
    channel = channel_of(world, LimitedPublisher, ledger)
    channel._unconfirmed = dict(enumerate(ledger.book.messages[17:], 1))

    channel.take(methods.BasicNack(delivery_tag=2, multiple=True))

    assert findings(world) == [f"{number} was refused, and there was room" for number in (17, 18)]


def test_basic_get_of_what_may_not_wait_is_found(world):
    ledger = limited(world, "at once")
    channel = channel_of(world, LimitedConsumer, ledger)
    channel._hand = ledger.consumer_connects()

    channel._take_message(methods.BasicGetOk(delivery_tag=1), b"\0\0", ledger.book.messages[0].body)

    assert findings(world) == ["0 has waited for basic.get"]
