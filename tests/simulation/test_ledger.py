"""The judges of the simulation: each promise that is broken by hand is found, and what is allowed is not."""
import pytest

from tests.durability.account import body_of
from tests.simulation import mqtt_clients
from tests.simulation.book import Book, Copy, Held
from tests.simulation.ledger import TopicLedger
from tests.simulation.queue_ledger import QueueLedger
from tests.simulation.stream_ledger import StreamLedger
from tests.simulation.world import World


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def book(world):
    return Book(world)


@pytest.fixture
def queue(book):
    """One with ten messages that were confirmed."""
    return filled(QueueLedger(book.world, "q", book))


def filled(ledger, source=None, **what):
    for _ in range(10):
        ledger.book.accept(ledger.book.publish(source, [ledger], **what))
    return ledger


def findings(world):
    return [finding.split(": ", 1)[1].removeprefix("q: ") for finding in world.findings]


def take(hand, *numbers, redelivered=False, **headers):
    for number in numbers:
        message = hand._ledger.book.messages[number]
        hand.take(message, Held(number + 1, "tag", None), redelivered, headers)


def copies(*numbers):
    return [Copy(number) for number in numbers]


def end(ledger):
    ledger.book.ends += 1
    ledger.process_ended()


def test_message_that_was_confirmed_and_does_not_come_is_found(world, queue):
    hand = queue.consumer_connects()
    take(hand, *range(9))
    hand.ack(copies(*range(9)))

    queue.check_complete()

    assert findings(world) == ["accepted and lost, or never delivered: [9] of 1"]


@pytest.mark.parametrize("traits, is_found", [
    ((), True), (("short",), False), (("expiring",), False), (("limited",), True), (("refusing",), True)])
def test_message_may_be_lost_where_the_arguments_of_its_queue_allow_it(world, book, traits, is_found):
    queue = filled(QueueLedger(world, "q", book, traits))

    queue.check_complete()

    assert bool(findings(world)) is is_found


def test_message_that_comes_back_after_its_ack_was_seen_is_found(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0)
    hand.ack(copies(0))()
    end(queue)

    take(queue.consumer_connects(), 0, redelivered=True)

    assert findings(world)[0].startswith("0 came back")


def test_message_whose_ack_was_not_flushed_may_come_back_after_a_power_cut(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0)
    hand.ack(copies(0))()
    end(queue)
    queue.power_was_cut()

    take(queue.consumer_connects(), 0, redelivered=True)

    assert findings(world) == []


def test_second_delivery_that_is_not_marked_is_found(world, queue):
    take(queue.consumer_connects(), 0)
    end(queue)

    take(queue.consumer_connects(), 0)

    assert findings(world) == ["0 came again, and not as redelivered"]


def test_messages_of_one_channel_out_of_order_are_found(world, queue):
    take(queue.consumer_connects(), 1, 0)

    assert findings(world) == ["0 came after 1"]


def test_message_whose_ack_a_closed_queue_has_forgotten_may_come_behind_others(world, queue):
    queue.disk_is_ill(True)

    take(queue.consumer_connects(), 1)
    take(queue.consumer_connects(), 0, redelivered=True)

    assert findings(world) == []


def test_messages_of_two_channels_have_no_order(world, queue):
    filled(queue, source="another")

    take(queue.consumer_connects(), 10, 0)

    assert findings(world) == []


def test_message_that_overtakes_one_that_was_given_back_is_found(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0, 1)
    hand.give_back(copies(0, 1))()

    take(hand, 1, redelivered=True)

    assert findings(world) == [
        "1 came before 0, which was given back with it", "1 came before 0, which was given back"]


def test_message_that_was_given_back_may_expire_there(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0, 1)
    queue.book.messages[0].ttl_s = 60.0
    hand.give_back(copies(0, 1))()

    take(hand, 1, redelivered=True)

    assert findings(world) == []


def test_message_that_was_on_its_way_when_another_was_given_back_may_come(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0)
    hand.give_back(copies(0))

    take(hand, 1)

    assert findings(world) == []


def test_message_that_comes_while_the_same_channel_has_it_is_found(world, queue):
    hand = queue.consumer_connects()
    take(hand, 0)

    take(hand, 0, redelivered=True)

    assert "0 came, while a client has it in hand" in findings(world)


def test_message_that_comes_while_it_is_asked_to_go_back_is_none(world, queue):
    """Its basic.recover is answered behind what the client has yet to read."""
    hand = queue.consumer_connects()
    take(hand, 0)
    hand.is_recovering = True

    take(queue.consumer_connects(), 0, redelivered=True)

    assert findings(world) == []


@pytest.mark.parametrize("traits, is_lost", [(["expiring", "letters"], False), (["letters"], True)])
def test_dead_letter_that_a_full_queue_refuses_is_gone_though_it_was_sent_there_too(
    world, book, traits, is_lost
):
    letters = QueueLedger(world, "l", book, ["refusing"])
    queue = QueueLedger(world, "q", book, traits, dies_to=letters)
    book.accept(book.publish(None, [queue, letters]))

    queue.check_complete()

    assert bool(findings(world)) is is_lost


def test_message_of_a_transaction_that_was_not_committed_is_found(world, book):
    queue = filled(QueueLedger(world, "q", book), is_open=True)

    take(queue.consumer_connects(), 0)

    assert findings(world) == ["0 came, and its transaction was not committed"]


def test_rolled_back_ack_settles_nothing(world, queue):
    hand = queue.consumer_connects()
    take(hand, *range(10))
    hand.settle_later(copies(*range(10)), False)
    hand.roll_back()

    queue.check_complete()

    assert findings(world) == ["accepted and lost, or never delivered: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] of 10"]


def test_delivery_count_that_falls_and_one_above_the_limit_are_found(world, book):
    queue = filled(QueueLedger(world, "q", book, ["limited"]))
    for count in (2, 1, 4):
        hand = queue.consumer_connects()
        take(hand, 0, redelivered=True, **{"x-delivery-count": count})
        hand.close()

    assert findings(world) == ["0 came with a count of 1 behind one of 2", "0 came with a count of 4"]


def test_count_that_comes_behind_a_power_cut_over_the_connection_before_may_be_lost_with_it(world, book):
    queue = filled(QueueLedger(world, "q", book, ["limited"]))
    hand = queue.consumer_connects()
    queue.power_was_cut()
    take(hand, 0, redelivered=True, **{"x-delivery-count": 2})
    hand.close()

    for count in (1, 3, 2):
        hand = queue.consumer_connects()
        take(hand, 0, redelivered=True, **{"x-delivery-count": count})
        hand.close()

    assert findings(world) == ["0 came with a count of 2 behind one of 3"]


@pytest.mark.parametrize("early_s, is_found", [(0.0005, False), (0.0015, True)])
def test_message_that_comes_a_millisecond_before_its_time_is_found(world, book, early_s, is_found):
    queue = QueueLedger(world, "q", book, ["delays"])
    message = book.publish(None, [queue], delay_s=2.0)
    world.run(message.published_s + message.delay_s - early_s)

    take(queue.consumer_connects(), 0)

    assert findings(world) == ["0 came before its time"] * is_found


def test_message_that_was_rejected_and_is_no_dead_letter_is_found(world, book):
    letters = QueueLedger(world, "letters", book)
    queue = filled(QueueLedger(world, "q", book, ["letters"], dies_to=letters))
    hand = queue.consumer_connects()
    take(hand, *range(10))
    hand.reject(copies(*range(10)))()
    other = letters.consumer_connects()
    take(other, *range(9), **{
        "x-death": [{"count": 1}], "x-first-death-queue": "q", "x-last-death-queue": "q",
        "x-last-death-reason": "rejected"})
    other.ack([Copy(number, 1) for number in range(9)])

    queue.check_complete()

    assert findings(world) == ["accepted and lost, or never delivered: [9] of 1"]


def test_message_that_was_given_back_and_comes_without_a_count_is_found(world, book):
    queue = filled(QueueLedger(world, "q", book, ["limited"]))
    hand = queue.consumer_connects()
    take(hand, 0)
    hand.give_back(copies(0))()

    take(hand, 0, redelivered=True)

    assert findings(world) == ["0 was given back, and came without a count"]


def test_message_that_comes_once_more_than_it_may_is_found_whatever_ended_before_it_was_published(
        world, book):
    book.ends = 3
    queue = filled(QueueLedger(world, "q", book, ["limited"]))

    take(queue.consumer_connects(), 0, **{"x-delivery-count": 4})

    assert findings(world) == ["0 came with a count of 4"]


def test_message_of_lower_priority_that_comes_first_is_found(world, book):
    queue = QueueLedger(world, "q", book, ["priority"])
    for priority in (1, 2):
        book.accept(book.publish(None, [queue], priority=priority))
    world.run(world.now_s + 1.0)

    queue.check_priority(book.messages[0], world.now_s)

    assert findings(world) == ["0 came before 1, which has a higher priority"]


@pytest.mark.parametrize("kind, found", [
    ("quorum", []), ("classic", ["0 came before 1, which has a higher priority"])])
def test_message_without_a_priority_has_that_of_the_kind_of_queue(world, book, kind, found):
    queue = QueueLedger(world, "q", book, ["priority", *({"quorum"} & {kind})])
    for priority in (None, 4):
        book.accept(book.publish(None, [queue], priority=priority))
    world.run(world.now_s + 1.0)

    queue.check_priority(book.messages[0], world.now_s)

    assert findings(world) == found


def test_octets_that_nobody_published_are_found(world, book, queue):
    book.message_of(body_of(3)[:-1] + b"?")
    book.message_of(body_of(10))

    assert [finding.split(":")[0] for finding in findings(world)] == 2 * ["octets that nobody published"]


@pytest.fixture
def topic(world):
    """One with a message at QoS 2 that has come."""
    ledger = TopicLedger(world, "t")
    ledger.publish_at(2)
    ledger.accept(0)
    ledger.deliver(0, 2, None)
    return ledger


def test_message_that_comes_twice_at_qos_2_is_found(world, topic):
    topic.process_ended()
    topic.deliver(0, 2, None)

    assert findings(world) == ["t: 0 came twice at QoS 2"]


def test_message_under_way_may_come_twice_over_a_power_cut(world, topic):
    topic.process_ended()
    topic.power_was_cut()
    topic.deliver(0, 2, None)

    assert findings(world) == []


@pytest.mark.parametrize("ends", [False, True])
def test_message_under_way_may_come_twice_over_the_end_of_a_process_without_room(world, topic, ends):
    """docs/mqtt.md: "a kill may double what was under way". Seed 235 without d0."""
    topic.disk_is_full(True)
    topic.disk_is_full(False)
    if ends:
        topic.process_ended()
    topic.deliver(0, 2, None)

    assert findings(world) == ([] if ends else ["t: 0 came twice at QoS 2"])


@pytest.mark.parametrize("is_accepted", [False, True])
@pytest.mark.parametrize("has_come", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_message_is_under_way_until_it_is_answered_and_has_come(world, is_accepted, has_come, fails):
    """Seed 2302; 653 and 1665, where it comes behind the kill only, perhaps as octets from before; where a
    flush fails 7165, whose publisher was gone and sends it again to a queue that fails then.
    """
    ledger = TopicLedger(world, "t")
    ledger.publish_at(2)
    if is_accepted:
        ledger.accept(0)
    if has_come:
        ledger.deliver(0, 2, None)
        ledger.complete(0)
        world.run(world.now_s + 1, lambda: False)
    if fails:
        ledger.disk_is_ill(True)
    else:
        ledger.disk_is_full(True)
    ledger.process_ended()
    for _ in range(1 if has_come else 2):
        ledger.deliver(0, 2, None)

    assert findings(world) == (["t: 0 came twice at QoS 2"] if is_accepted and has_come else [])


def test_identifier_that_is_used_anew_too_early_is_found(world, topic):
    topic.publish_at(2)
    topic.deliver(1, 2, 0)

    assert findings(world) == ["t: 1 came with the identifier of 0, which had no PUBREL"]


def test_message_that_comes_again_over_a_power_cut_may_have_an_identifier_that_was_used_since(world, topic):
    topic.publish_at(2)
    topic.complete(0)
    topic.deliver(1, 2, None)
    topic.process_ended()
    topic.power_was_cut()
    topic.deliver(0, 2, 1)

    assert findings(world) == []


def test_will_that_was_taken_back_and_comes_is_found(world, topic):
    topic.publish_at(2)
    topic.take_back(1)

    topic.deliver(1, 2, None)

    assert findings(world) == ["t: 1 came, a will that was taken back"]


@pytest.mark.parametrize("is_slow", [False, True])
def test_will_may_come_where_the_power_was_cut_before_the_disk_knew(world, topic, is_slow):
    topic.publish_at(2)
    topic.take_back(1)
    if is_slow:
        topic.disk_is_ill(False)
        world.run(world.now_s + 10)
    topic.power_was_cut()

    topic.deliver(1, 2, None)

    assert findings(world) == []


@pytest.mark.parametrize("illness, recovers, is_accepted", [
    (None, False, True), ("is_full", False, False), ("is_full", True, False), ("fails", False, False),
    ("slow", False, True),
])
def test_will_of_a_connection_that_is_taken_over_comes_unless_there_was_no_room(
    world, topic, illness, recovers, is_accepted
):
    testator = mqtt_clients.Testator(world, None, "testator", topic)
    testator._number = testator._taken_over = 1
    testator._forgot_s = world.now_s
    if illness == "is_full":
        topic.disk_is_full(True)
        if recovers:
            topic.disk_is_full(False)
    elif illness is not None:
        topic.disk_is_ill(illness == "fails")

    testator.go_on()

    assert (1 in topic.accepted) == is_accepted


@pytest.fixture
def stream(book):
    """One with ten messages that were confirmed, and a function that shows some of them to a new reader."""
    stream = StreamLedger(book.world, "s", book)
    filled(stream)

    def read(*offsets, begin="first", numbers=None):
        reader = stream.consumer_connects(None)
        reader.consumes("tag-1")
        reader._begin = begin
        for offset, number in zip(offsets, numbers or offsets):
            message = book.messages[number]
            reader.take(message, Held(offset + 1, "tag", None), False, {"x-stream-offset": offset})
        return reader

    stream.read = read
    return stream


@pytest.mark.parametrize("offsets, numbers, finding", [
    ((0, 1, 2), (0, 1, 3), "s: offset 2 shows 3, and has shown 2"),
    ((0, 2), (0, 2), "s: offset 2 came in place of 1"),
    ((1, 2), (1, 2), "s: offset 1 came first, from first: 0 to 0"),
    ((0, 1), (0, 0), "s: 0 is at 1, and has been at 0"),
])
def test_offset_that_shows_something_else_is_found(world, stream, offsets, numbers, finding):
    stream.read(0, 1, 2)

    stream.read(*offsets, numbers=numbers)

    assert finding in [found.split(" s: ", 1)[1] for found in world.findings]


def test_what_was_shown_has_to_be_there_when_all_is_calm(world, stream):
    stream.read(*range(10))
    stream.is_calm = True
    stream.read(*range(9))

    stream.check_complete()

    assert world.findings[-1].endswith("s: accepted and lost, or never delivered: [9] of 1")
