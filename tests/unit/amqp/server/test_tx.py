"""Transactions: nothing happens before commit, everything at once then, and nothing after rollback."""
import errno
import time

import gevent
import pytest

from gomq_py.amqp.server import tx
from gomq_py.amqp.server.channel import Channel
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicConsumeOk, BasicGet, BasicGetEmpty, BasicGetOk, BasicNack, BasicRecover,
    BasicRecoverOk, BasicReject, BasicReturn, ChannelClose, ChannelCloseOk, ChannelOpen, ChannelOpenOk,
    ConfirmSelect, ConfirmSelectOk, ConnectionClose, QueueDeclare, QueueDeclareOk, TxCommit, TxCommitOk,
    TxRollback, TxRollbackOk, TxSelect, TxSelectOk,
)
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import SliceClock
from tests.support.clocks import StepClock
from tests.support.waiting import wait_until


@pytest.fixture
def transactional(client):
    """A client with a queue named q, channel 1 transactional, channel 2 not."""
    client.call(ChannelOpen(), ChannelOpenOk, channel=2)
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(TxSelect(), TxSelectOk)
    return client


def count(client):
    return client.call(QueueDeclare(queue="q"), QueueDeclareOk, channel=2).message_count


def get(client, channel=1):
    client.send_method(BasicGet(queue="q"), channel)
    return client.expect_message(BasicGetOk, channel)


def test_publishes_reach_the_queue_at_commit(transactional):
    transactional.publish("q", b"1")
    transactional.publish("q", b"2")
    assert count(transactional) == 0

    transactional.call(TxCommit(), TxCommitOk)

    assert count(transactional) == 2


def test_publishes_are_forgotten_at_rollback(transactional):
    transactional.publish("q", b"1")

    transactional.call(TxRollback(), TxRollbackOk)
    transactional.call(TxCommit(), TxCommitOk)

    assert count(transactional) == 0


def test_acks_take_effect_at_commit(transactional, door):
    transactional.publish("q", channel=2)
    get(transactional)
    transactional.send_method(BasicAck(delivery_tag=1))
    assert count(transactional) == 0
    assert door.queue("q").unacked_count == 1

    transactional.call(TxCommit(), TxCommitOk)

    assert door.queue("q").unacked_count == 0


@pytest.mark.parametrize("method", [
    BasicReject(delivery_tag=1, requeue=True), BasicNack(delivery_tag=1, requeue=True)
])
def test_rejections_take_effect_at_commit(transactional, method):
    transactional.publish("q", channel=2)
    get(transactional)
    transactional.send_method(method)
    transactional.call(BasicGet(queue="q"), BasicGetEmpty)

    transactional.call(TxCommit(), TxCommitOk)

    assert count(transactional) == 1


def test_tags_settled_before_a_rollback_can_be_settled_again(transactional, door):
    transactional.publish("q", channel=2)
    get(transactional)
    transactional.send_method(BasicNack(delivery_tag=1))
    transactional.call(TxRollback(), TxRollbackOk)

    transactional.send_method(BasicAck(delivery_tag=1))
    transactional.call(TxCommit(), TxCommitOk)

    assert door.queue("q").unacked_count == 0


@pytest.mark.parametrize("first", [
    BasicAck(delivery_tag=1), BasicAck(delivery_tag=2, multiple=True), BasicAck(multiple=True)
])
def test_tag_can_be_settled_once_in_a_transaction(transactional, first):
    for _ in range(2):
        transactional.publish("q", channel=2)
    get(transactional)
    get(transactional)
    transactional.send_method(first)

    transactional.send_method(BasicAck(delivery_tag=1))

    transactional.expect_error(
        ChannelClose, 406, "PRECONDITION_FAILED - unknown delivery tag 1", blamed=BasicAck
    )


def test_unknown_tag_is_refused_before_commit(transactional):
    transactional.send_method(BasicAck(delivery_tag=7))

    transactional.expect_error(
        ChannelClose, 406, "PRECONDITION_FAILED - unknown delivery tag 7", blamed=BasicAck
    )


def test_multiple_settles_what_was_delivered_when_it_was_sent(transactional, door):
    for _ in range(3):
        transactional.publish("q", channel=2)
    get(transactional)
    get(transactional)
    transactional.send_method(BasicAck(multiple=True))
    get(transactional)

    transactional.call(TxCommit(), TxCommitOk)

    assert door.queue("q").unacked_count == 1


def test_mandatory_message_comes_back_at_commit(transactional):
    transactional.publish("nowhere", b"x", mandatory=True)
    transactional.expect_silence()

    transactional.send_method(TxCommit())

    assert transactional.expect_message(BasicReturn)[2] == b"x"
    transactional.expect(TxCommitOk)


def test_missing_exchange_is_refused_before_commit(transactional):
    transactional.publish("q", exchange="nope")

    transactional.expect_error(ChannelClose, 404, "NOT_FOUND - no exchange 'nope' in vhost '/'")


def test_commit_ok_waits_for_the_disk(slow_disk_door):
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="q", durable=True))
    client.expect_silence()
    slow_disk_door.committer.finish()
    client.expect(QueueDeclareOk)
    client.call(TxSelect(), TxSelectOk)
    client.publish("q", properties=Properties(delivery_mode=2).encode())

    client.send_method(TxCommit())

    client.expect_silence()
    slow_disk_door.committer.finish()
    client.expect(TxCommitOk)


def test_refused_message_makes_the_commit_partial(transactional, door):
    door.queue("q").close("test")
    transactional.publish("q")

    transactional.send_method(TxCommit())

    transactional.expect_error(
        ChannelClose, 406, "PRECONDITION_FAILED - partial tx completion", blamed=TxCommit
    )


def test_transaction_is_forgotten_with_its_channel(transactional):
    transactional.publish("q", b"x")

    transactional.send_method(ChannelClose())
    transactional.frame()

    assert count(transactional) == 0


def test_transaction_holds_a_limited_number_of_octets(transactional, monkeypatch):
    monkeypatch.setattr(tx, "TRANSACTION_OCTETS_MAX", 3000)
    for _ in range(3):
        transactional.publish("q", b"x")

    transactional.expect_error(
        ChannelClose, 311, "CONTENT_TOO_LARGE - the transaction holds more than 3000 bytes"
    )


def test_tx_select_may_be_repeated(transactional):
    transactional.publish("q")
    transactional.call(TxSelect(), TxSelectOk)
    transactional.call(TxCommit(), TxCommitOk)

    assert count(transactional) == 1


def test_tx_select_on_a_confirming_channel_is_refused(client):
    client.call(ConfirmSelect(), ConfirmSelectOk)

    client.send_method(TxSelect())

    client.expect_error(
        ChannelClose, 406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode", blamed=TxSelect
    )


@pytest.mark.parametrize("method", [TxCommit(), TxRollback()])
def test_commit_and_rollback_need_a_transaction(client, method):
    client.send_method(method)

    client.expect_error(
        ChannelClose, 406, "PRECONDITION_FAILED - channel is not transactional", blamed=type(method)
    )


@pytest.fixture
def moving(slow_disk_door):
    """A client of a slow disk that holds the only message of the durable queue ``source``, and has published
    to ``target`` and acked it in a transaction."""
    door = slow_disk_door
    client = door.client()
    for name in ("source", "target"):
        client.send_method(QueueDeclare(queue=name, durable=True))
        finish_when_asked(door)
        client.expect(QueueDeclareOk)
    client.publish("source", properties=PERSISTENT)
    client.call(TxSelect(), TxSelectOk)
    client.send_method(BasicGet(queue="source"))
    client.expect_message(BasicGetOk)
    client.publish("target", properties=PERSISTENT)
    client.send_method(BasicAck(delivery_tag=1))
    return client


PERSISTENT = Properties(delivery_mode=2).encode()


def in_small_slices(monkeypatch, items):
    """Every slice of a transaction's work is over after so many items.

    Returns a list that grows by one with each slice.
    """
    slices = []

    def clock(every):
        slices.append(every)
        return SliceClock(seconds=items - 0.5, clock=StepClock(1))

    monkeypatch.setattr(tx, "SliceClock", clock)
    return slices


def finish_when_asked(door, error=None):
    """End the sync that somebody waits for, once somebody does."""
    wait_until(lambda: door.committer.waiting, sleep=gevent.sleep)
    door.committer.finish(error)


def counts(door, name):
    return door.queue(name).ready_count, door.queue(name).unacked_count


def test_commit_settles_once_its_messages_are_on_disk_and_answers_once_the_acks_are(moving, slow_disk_door):
    moving.send_method(TxCommit())
    moving.expect_silence()
    assert counts(slow_disk_door, "target") == (1, 0) and counts(slow_disk_door, "source") == (0, 1)

    slow_disk_door.committer.finish()
    moving.expect_silence()
    assert counts(slow_disk_door, "source") == (0, 0)

    slow_disk_door.committer.finish()
    moving.expect(TxCommitOk)


@pytest.mark.parametrize("end", ["close", "vanish"])
def test_commit_that_was_read_is_carried_out_though_its_channel_has_gone(moving, slow_disk_door, end):
    moving.send_method(TxCommit())
    moving.expect_silence()
    if end == "close":
        moving.send_method(ChannelClose())
        moving.expect_silence()
    else:
        moving.close()
        wait_until(lambda: not slow_disk_door.hub.clients, sleep=gevent.sleep)

    slow_disk_door.committer.finish()

    assert counts(slow_disk_door, "source") == (0, 0)
    slow_disk_door.committer.finish()
    if end == "close":
        moving.expect(TxCommitOk)
        moving.expect(ChannelCloseOk)


def test_commit_whose_messages_the_disk_refuses_gives_back_what_it_was_to_settle(moving, slow_disk_door):
    moving.send_method(TxCommit())
    moving.expect_silence()

    slow_disk_door.committer.finish(OSError(errno.EIO, "Input/output error"))

    moving.expect_error(
        ConnectionClose, 541, "INTERNAL_ERROR - the disk refused a change: [Errno 5] Input/output error",
        channel=0,
    )
    assert counts(slow_disk_door, "source") == (1, 0)


def test_tag_of_a_commit_under_way_is_unknown(moving, slow_disk_door):
    moving.send_method(TxCommit())
    moving.send_method(BasicAck(delivery_tag=1))

    moving.expect_silence()
    slow_disk_door.committer.finish()
    slow_disk_door.committer.finish()

    moving.expect(TxCommitOk)
    moving.expect_error(ChannelClose, 406, "PRECONDITION_FAILED - unknown delivery tag 1", blamed=BasicAck)


def test_commit_with_a_refused_message_settles_nothing(moving, slow_disk_door):
    slow_disk_door.queue("target").close("test")

    moving.send_method(TxCommit())

    moving.expect_error(ChannelClose, 406, "PRECONDITION_FAILED - partial tx completion", blamed=TxCommit)
    assert counts(slow_disk_door, "source") == (1, 0)


def test_commit_with_very_many_settlements_goes_in_slices(slow_disk_door, monkeypatch):
    slices = in_small_slices(monkeypatch, 3)
    door = slow_disk_door
    client = door.client()
    client.send_method(QueueDeclare(queue="q", durable=True))
    finish_when_asked(door)
    client.expect(QueueDeclareOk)
    for _ in range(10):
        client.publish("q", properties=PERSISTENT)
    client.call(TxSelect(), TxSelectOk)
    for _ in range(10):
        client.send_method(BasicGet(queue="q"))
        client.expect_message(BasicGetOk)
    client.send_method(BasicAck(delivery_tag=4, multiple=True))
    client.send_method(BasicNack(delivery_tag=6, multiple=True))
    client.send_method(BasicNack(delivery_tag=10, multiple=True, requeue=True))
    client.publish("q", properties=PERSISTENT)

    client.send_method(TxCommit())
    finish_when_asked(door)
    begun = len(slices)
    assert counts(door, "q") == (1, 7)
    finish_when_asked(door)
    assert len(slices) >= begun + 2

    client.expect(TxCommitOk)
    assert counts(door, "q") == (5, 0)


# much of it

def test_acks_of_everything_do_not_look_at_every_message_again(client, door):
    """The time is the processor's: 200 frames looked at 20 000 messages each, which took a second of it."""
    many = 20_000
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    for _ in range(many):
        client.publish("q")
    client.call(BasicConsume(queue="q"), BasicConsumeOk)
    client.send_method(TxSelect())
    channel = door.connection().channels[1]
    drain_until(client, lambda: channel.unacked.count == many and channel.transaction is not None)
    began = time.thread_time()

    for _ in range(200):
        client.send_method(BasicAck(delivery_tag=0, multiple=True))
    client.send_method(TxCommit())
    wait_until(lambda: channel.unacked.count == 0, sleep=gevent.sleep)

    assert time.thread_time() - began < 0.4
    wait_until(lambda: door.queue("q").unacked_count == 0, sleep=gevent.sleep)


def drain_until(client, condition):
    """Read and throw away what the server sends until something is true."""
    client.socket.settimeout(0.01)
    while not condition():
        try:
            client.socket.recv(65536)
        except TimeoutError:
            gevent.sleep(0)


def test_commit_looks_at_its_consumers_once_and_not_for_every_ack(transactional, monkeypatch):
    looks = []
    resume = Channel.resume_consumers
    for _ in range(20):
        transactional.publish("q", channel=2)
    for tag in range(1, 21):
        get(transactional)
        transactional.send_method(BasicAck(delivery_tag=tag))
    count(transactional)
    monkeypatch.setattr(Channel, "resume_consumers", lambda channel: looks.append(channel) or resume(channel))

    transactional.call(TxCommit(), TxCommitOk)

    assert len(looks) == 1


def test_large_commit_is_carried_out_in_slices_and_the_client_is_not_read_meanwhile(
    transactional, door, monkeypatch
):
    for _ in range(10):
        transactional.publish("q", b"old", channel=2)
    for _ in range(10):
        get(transactional)
    transactional.send_method(BasicNack(delivery_tag=5, multiple=True, requeue=True))
    for tag in range(6, 10):
        transactional.send_method(BasicAck(delivery_tag=tag))
    for number in range(20):
        transactional.publish("q", b"%d" % number)
    slices = in_small_slices(monkeypatch, 3)

    transactional.send_method(TxCommit())
    transactional.send_method(BasicGet(queue="q"), 2)

    transactional.expect(TxCommitOk)
    assert transactional.expect_message(BasicGetOk, 2)[2] == b"old"
    assert len(slices) >= 10
    assert counts(door, "q") == (24, 2)


def test_commit_that_a_queue_refuses_a_part_of_is_partial_also_in_slices(transactional, door, monkeypatch):
    in_small_slices(monkeypatch, 3)
    door.queue("q").close("test")
    for _ in range(10):
        transactional.publish("q")

    transactional.send_method(TxCommit())

    transactional.expect_error(
        ChannelClose, 406, "PRECONDITION_FAILED - partial tx completion", blamed=TxCommit
    )


def test_large_commit_is_carried_out_though_its_connection_is_lost_in_the_middle(client, door, monkeypatch):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    for _ in range(10):
        client.publish("q")
    client.call(TxSelect(), TxSelectOk)
    for _ in range(10):
        client.send_method(BasicGet(queue="q"))
        client.expect_message(BasicGetOk)
    client.send_method(BasicAck(delivery_tag=8, multiple=True))
    for _ in range(10):
        client.publish("q")
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    slices = in_small_slices(monkeypatch, 3)

    client.send_method(TxCommit())
    wait_until(lambda: slices, sleep=lambda _: gevent.sleep(0))
    door.connection().abort("enough")

    wait_until(lambda: counts(door, "q") == (12, 0), sleep=gevent.sleep)


def test_recover_in_a_transaction_leaves_what_it_settles_and_goes_in_slices(transactional, door, monkeypatch):
    for _ in range(10):
        transactional.publish("q", channel=2)
    for _ in range(10):
        get(transactional)
    transactional.send_method(BasicAck(delivery_tag=2, multiple=True))
    transactional.send_method(BasicAck(delivery_tag=9))
    slices = in_small_slices(monkeypatch, 3)

    transactional.call(BasicRecover(requeue=True), BasicRecoverOk)

    assert counts(door, "q") == (7, 3) and len(slices) >= 3
    transactional.call(TxCommit(), TxCommitOk)
    assert counts(door, "q") == (7, 0)


@pytest.mark.parametrize("kind", [list, set])
def test_what_a_large_transaction_held_is_freed_in_slices(monkeypatch, kind):
    monkeypatch.setattr(tx, "DROPPED_AT_ONCE", 4)
    jobs, kept = [], kind(range(10))

    class Jobs:
        def start(self, job):
            jobs.append(job)

    tx.drop(kept, Jobs())

    assert len(kept) == 10
    assert [(jobs[0].step(), len(kept)) for _ in range(3)] == [(True, 6), (True, 2), (False, 0)]
