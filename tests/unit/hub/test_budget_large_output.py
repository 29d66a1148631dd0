"""Large messages that nobody reads: copies of them share one budget,
and who reads nothing while others wait is dropped.
"""
import gevent
import pytest

from gomq_py.amqp.wire.methods import (
    BasicConsume, BasicConsumeOk, BasicDeliver, BasicQos, BasicQosOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.hub.budget import LargeOutput
from tests.support.door import Door
from tests.support.virtual_time import VirtualTime
from tests.support.waiting import wait_until

MIB = 1 << 20


@pytest.fixture
def door(tmp_path):
    """A server with room for two copies of the four large messages in its queue."""
    with Door(tmp_path / "data", max_large_output=6 * MIB) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)
        for number in range(4):
            client.publish("q", b"%d" % number * (2 * MIB))
        wait_until(lambda: door.queue("q").ready_count == 4, sleep=gevent.sleep)
        yield door


def consumer_that_does_not_read(door):
    client = door.client()
    client.call(BasicQos(prefetch_count=1), BasicQosOk)
    client.call(BasicConsume(queue="q"), BasicConsumeOk)
    return client


def pending(door):
    return sum(connection.output.pending_octets() for connection in door.hub.clients)


def test_copies_of_large_messages_stay_within_the_budget(door):
    clients = [consumer_that_does_not_read(door) for _ in range(4)]
    wait_until(lambda: door.queue("q").ready_count == 2, sleep=gevent.sleep)
    assert pending(door) <= 6 * MIB and 0 < door.hub.large_output.held <= 6 * MIB

    bodies = {client.expect_message(BasicDeliver)[2][:1] for client in clients}

    assert bodies == {b"0", b"1", b"2", b"3"}
    wait_until(lambda: not door.hub.large_output.held, sleep=gevent.sleep)


def test_who_reads_nothing_while_others_wait_is_dropped(door):
    later = VirtualTime()
    door.hub.large_output = LargeOutput(6 * MIB, later, later.clock)
    stuck = [consumer_that_does_not_read(door) for _ in range(2)]
    wait_until(lambda: door.queue("q").ready_count == 2, sleep=gevent.sleep)
    wait_until(lambda: door.hub.large_output.held > 4 * MIB, sleep=gevent.sleep)

    reader = consumer_that_does_not_read(door)
    wait_until(lambda: later.calls, sleep=gevent.sleep, what="nobody waits")
    later.pass_time(4)

    assert reader.expect_message(BasicDeliver)[2][:1] in b"0123"
    wait_until(lambda: len(door.hub.clients) == 3, sleep=gevent.sleep)
    assert len(stuck) == 2
    door.hub.large_output.close()


def test_nobody_is_dropped_while_nobody_waits(door):
    later = VirtualTime()
    door.hub.large_output = LargeOutput(6 * MIB, later, later.clock)
    for _ in range(2):
        consumer_that_does_not_read(door)
    wait_until(lambda: door.hub.large_output.held > 4 * MIB, sleep=gevent.sleep)

    later.pass_time(60)
    assert not later.calls
    assert len(door.hub.clients) == 3


def test_message_larger_than_the_budget_is_delivered_alone(tmp_path):
    with Door(tmp_path / "data", max_large_output=MIB) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)
        client.publish("q", b"x" * (3 * MIB))
        client.call(BasicConsume(queue="q"), BasicConsumeOk)

        assert len(client.expect_message(BasicDeliver)[2]) == 3 * MIB


def test_messages_that_are_sent_from_their_files_count_as_copies_do(tmp_path):
    """Each has a segment of its own, whose room on the disk and descriptor it keeps."""
    with Door(tmp_path / "data", max_large_output=25 * MIB) as door:
        client = door.client()
        client.call(QueueDeclare(queue="q"), QueueDeclareOk)
        for number in range(3):
            client.publish("q", b"%d" % number * (9 * MIB))
        wait_until(lambda: door.queue("q").ready_count == 3, sleep=gevent.sleep)
        clients = [consumer_that_does_not_read(door) for _ in range(3)]
        wait_until(lambda: door.queue("q").ready_count == 1, sleep=gevent.sleep)
        assert 9 * MIB < door.hub.large_output.held <= 25 * MIB

        bodies = [client.expect_message(BasicDeliver)[2] for client in clients]

        assert sorted(bodies) == [b"%d" % number * (9 * MIB) for number in range(3)]
        wait_until(lambda: not door.hub.large_output.held, sleep=gevent.sleep)
