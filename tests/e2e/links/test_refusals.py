"""Destinations that do not take what a link brings: full queues, messages that are too large, alarms."""
from functools import partial

import pytest

from gomq_py.broker.transfer import engine
from gomq_py.links.ends import SourceEnd, TargetEnd
from gomq_py.links.session import LinkSession
from tests.e2e.links.conftest import LARGEST
from tests.support.held_up import Standstill
from tests.support.links import connect, depth, ended, fill, numbers, take_all, until

REJECTING = {"x-max-length": 100, "x-overflow": "reject-publish"}
TOO_LARGE = b"x" * (LARGEST + 1)


def full_queue(target, queue):
    """The test's queue at the destination, which refuses more than 100 messages."""
    target.queue_delete(queue)
    target.queue_declare(queue, arguments=REJECTING)


def dead_letters(source, queue):
    """The test's queue at the source anew, and the name of the queue that gets its dead letters."""
    source.queue_delete(queue)
    source.queue_declare(queue + ".dead")
    source.queue_declare(queue, durable=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue + ".dead"})
    return queue + ".dead"


def test_refused_messages_wait_and_arrive_in_order(queues, make_link):
    queue, source, target = queues
    full_queue(target, queue)
    fill(source, queue, 350)

    link = make_link()
    link.start()
    for count in (100, 200, 300):
        until(lambda: depth(target, queue) == 100 and link.status.moved == count)  # noqa: B023
        until(lambda: link.status.error)
        status = link.status
        target.queue_purge(queue)  # room for 100 at once
    until(lambda: link.status.moved == 350)

    assert (status.state, status.error) == (
        "running", "destination: the broker refuses messages (basic.nack)")
    assert status.refused > 0
    assert numbers(take_all(target, queue, 50)) == list(range(300, 350))
    assert (link.status.error, link.status.set_aside, link.status.reconnects) == ("", 0, 0)


def test_message_refused_too_often_is_dead_lettered_at_its_source(queues, make_link):
    queue, source, target = queues
    full_queue(target, queue)
    dead = dead_letters(source, queue)
    fill(source, queue, 103)

    link = make_link(refusals=2)
    link.start()
    until(lambda: link.status.set_aside == 3)

    assert link.status.moved == 100
    assert numbers(take_all(source, dead, 3)) == [100, 101, 102]
    assert numbers(take_all(target, queue, 100)) == list(range(100))
    assert depth(source, queue) == 0


@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "large"])
def test_messages_wait_at_their_source_while_their_queue_is_not_there(queues, make_link, size):
    queue, source, target = queues
    link = make_link()
    link.start()
    until(lambda: link.status.state == "running")
    target.queue_delete(queue)

    fill(source, queue, 5, body=b"%d " + b"x" * size)
    until(lambda: link.status.refused)
    refused = link.status
    target.queue_declare(queue)
    until(lambda: link.status.moved == 5)

    assert (refused.state, refused.moved) == ("running", 0)
    assert "(basic.return)" in refused.error and f"queue '{queue}' is not there" in refused.error
    assert sorted(numbers(take_all(target, queue, 5))) == [0, 1, 2, 3, 4]
    assert (link.status.error, link.status.reconnects) == ("", 0)


def test_link_that_does_not_wait_for_confirms_connects_anew_when_messages_come_back(queues, make_link, pair):
    """So it declares the queue, where it has one to declare."""
    queue, source, target = queues
    prepared = TargetEnd(pair[1].amqp_url, "", queue, prepare=lambda channel: channel.queue_declare(queue))
    target.queue_delete(queue)
    link = make_link(target=prepared, ack_mode="on-publish")
    link.start()
    until(lambda: link.status.state == "running")
    target.queue_delete(queue)

    fill(source, queue, 1)
    until(lambda: link.status.reconnects == 1 and link.status.state == "running")
    fill(source, queue, 5)

    assert numbers(take_all(target, queue, 5)) == list(range(5))


def test_large_messages_that_are_refused_wait_and_arrive(queues, make_link):
    """They are not kept by the link: the source is asked for them again."""
    queue, source, target = queues
    full_queue(target, queue)
    fill(target, queue, 99)
    fill(source, queue, 5, body=b"%d " + b"x" * 300_000)

    link = make_link()
    link.start()
    until(lambda: link.status.moved == 1 and link.status.refused)
    take_all(target, queue, 99)
    until(lambda: link.status.moved == 5)

    assert sorted(numbers(take_all(target, queue, 5))) == [0, 1, 2, 3, 4]
    assert link.status.reconnects == 0


def test_message_too_large_for_the_destination_is_dead_lettered_after_the_limit(queues, make_link):
    queue, source, target = queues
    dead = dead_letters(source, queue)
    fill(source, queue, 50)
    source.publish("", queue, TOO_LARGE)
    fill(source, queue, 50, first=50)

    link = make_link(refusals=3)
    link.start()
    until(lambda: link.status.moved == 100)

    assert link.status.set_aside == 1
    assert link.status.reconnects >= 3
    assert set(numbers(take_all(target, queue, depth(target, queue)))) == set(range(100))
    assert [delivery.body for delivery in take_all(source, dead, 1)] == [TOO_LARGE]
    assert link.status.state == "running"


def test_message_too_large_waits_and_is_told_where_there_is_no_limit(queues, make_link):
    queue, source, target = queues
    source.publish("", queue, TOO_LARGE)

    link = make_link()
    link.start()
    until(lambda: link.status.reconnects >= 4)
    error = link.status.error

    ended(link)
    assert error.startswith("destination: 406 ") and "larger than configured max size" in error
    assert depth(source, queue) == 1
    assert link.status.set_aside == 0


def test_small_message_that_the_destination_finds_malformed_is_found_among_others(queues, make_link, pair):
    """Its exchange is not there: the channel ends with 404 as for a message, and never was up before."""
    queue, source, target = queues
    dead = dead_letters(source, queue)
    target.exchange_declare("gone", "fanout", durable=False)
    target.queue_bind(queue, "gone")
    link = make_link(target=TargetEnd(pair[1].amqp_url, "gone"), refusals=2)
    link.start()
    fill(source, queue, 10)
    until(lambda: link.status.moved == 10)

    target.exchange_delete("gone")
    fill(source, queue, 10, first=10)
    until(lambda: link.status.reconnects >= 5)
    error = link.status.error
    target.exchange_declare("gone", "fanout", durable=False)
    target.queue_bind(queue, "gone")
    until(lambda: link.status.moved == 20)

    assert error.startswith("destination: 404 ")
    assert numbers(take_all(target, queue, 20)) == list(range(20))
    assert depth(source, dead) == 0, "what is no message's fault sets none aside"


def test_alarm_at_the_destination_blocks_and_loses_nothing(queues, make_link, pair, two_config):
    queue, source, target = queues
    link = make_link()
    link.start()
    fill(source, queue, 100)
    until(lambda: link.status.moved == 100)

    two_config(f"[main]\nfree_disk_min = {1 << 52}\n")
    until(lambda: any("disk alarm: publishers are held" in line for line in pair[1].log))
    fill(source, queue, 5000, first=100)
    until(lambda: link.status.blocked)  # the broker says so to whoever publishes
    blocked = link.status
    two_config("")
    until(lambda: link.status.moved == 5100)

    assert (blocked.state, blocked.error, blocked.reconnects) == ("running", "", 0)
    assert not link.status.blocked
    assert numbers(take_all(target, queue, 5100)) == list(range(5100))
    assert link.status.reconnects == 0


def test_queue_that_vanishes_at_the_source_is_waited_for(queues, make_link):
    queue, source, target = queues
    link = make_link()
    link.start()
    fill(source, queue, 10)
    until(lambda: link.status.moved == 10)

    source.queue_delete(queue)
    until(lambda: link.status.reconnects >= 2)
    status = link.status
    source.queue_declare(queue, durable=True)
    fill(source, queue, 10, first=10)
    until(lambda: link.status.moved == 20)

    assert status.state == "starting"
    assert status.error.startswith("source: 404 NOT_FOUND")
    assert numbers(take_all(target, queue, 20)) == list(range(20))
    assert (link.status.state, link.status.error) == ("running", "")


def test_queue_that_never_was_ends_the_link(queues, make_link, pair):
    ends = []
    link = make_link(
        source=SourceEnd(pair[0].amqp_url, "nowhere"), on_end=lambda link, reason: ends.append(reason))
    link.start()
    until(lambda: link.has_ended)

    assert ends == ["error"]
    assert link.status.state == "error"
    assert link.status.error.startswith("source: 404 NOT_FOUND")


def test_large_messages_of_a_stream_that_are_refused_wait_and_arrive(queues, make_link, pair):
    queue, source, target = queues
    full_queue(target, queue)
    fill(target, queue, 99)
    source.queue_delete(queue)
    source.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
    fill(source, queue, 5, body=b"%d " + b"x" * 300_000)

    link = make_link(source=SourceEnd(
        pair[0].amqp_url, queue, consumer_arguments={"x-stream-offset": "first"},
        offset_argument="x-stream-offset"))
    link.start()
    until(lambda: link.status.moved == 1 and link.status.refused)
    target.queue_purge(queue)
    until(lambda: set(numbers_there(target, queue)) == {1, 2, 3, 4})


def numbers_there(channel, queue):
    """What waits in a queue, which is left as it is."""
    found = []
    while (delivery := channel.get(queue)) is not None:
        found.append(delivery)
    if found:
        channel.nack(found[-1].delivery_tag, multiple=True, requeue=True)
    return numbers(found)


def test_link_whose_messages_are_refused_waits_without_work_and_stays_connected(
    queues, make_link, monkeypatch,
):
    """More waits in the source's socket, unread: nobody takes that for a source that is dead."""
    queue, source, target = queues
    full_queue(target, queue)
    fill(source, queue, 3000)
    looks = []
    look = LinkSession._source_readable
    monkeypatch.setattr(LinkSession, "_source_readable", lambda self: looks.append(look(self)))

    link = make_link(connect=partial(connect, heartbeat_s=1))
    with Standstill() as standstill:
        link.start()
        until(lambda: link.status.moved == 100 and link.status.refused and not link.status.unconfirmed)
        refused, looks[:] = link.status.refused, []
        until(lambda: link.status.refused >= refused + 4)  # a second each: twice the time of a dead source

    if standstill.longest_s < 1:  # or each end may rightly have given up the other
        assert len(looks) < 50
        assert (link.status.state, link.status.reconnects) == ("running", 0)
    take_all(target, queue, 100)
    until(lambda: link.status.moved == 200)


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "stream"}], ids=["queue", "stream"])
def test_large_message_that_is_refused_is_given_up_while_others_are_taken(
        queues, make_link, pair, arguments, monkeypatch):
    """Links do not keep it: it is asked for again, and those behind it pass it each time."""
    monkeypatch.setattr(engine, "TRY_AGAIN_MS", 20)
    queue, source, target = queues
    target.queue_delete(queue)
    target.queue_declare(queue, arguments={"x-max-length-bytes": 500_000, "x-overflow": "reject-publish"})
    source.queue_delete(queue)
    source.queue_declare(queue, durable=True, arguments=arguments)
    fill(source, queue, 1, body=b"%d " + b"x" * 600_000)
    link = make_link(source=SourceEnd(
        pair[0].amqp_url, queue, offset_argument="x-stream-offset",
        consumer_arguments={"x-stream-offset": "first"} if arguments else None), refusals=2)
    link.start()
    taken = []

    def is_given_up():
        fill(source, queue, 1, first=1, body=b"%d " + b"x" * 200_000)
        fill(source, queue, 1, first=2)
        taken.extend(numbers(take_all(target, queue)))
        return link.status.set_aside
    until(is_given_up)

    assert link.status.set_aside == 1
    assert {1, 2} <= set(taken) and link.status.refused > 2
