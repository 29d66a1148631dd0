"""Publisher confirms of one channel: coalesced, in order, and never before the disk."""
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from gomq_py.amqp.server.confirms import Confirms
from gomq_py.amqp.wire.frames import FrameReader
from gomq_py.amqp.wire.methods import (
    BasicAck, ChannelClose, ConfirmSelect, ConfirmSelectOk, QueueDeclare, QueueDeclareOk, TxSelect,
    TxSelectOk, decode_method,
)
from gomq_py.storage.flush.flushing import NextFlush
from tests.support.door import publish_frames

QUEUES = ((SimpleNamespace(failed=False),),)


class Disk:
    """``coming``: the flush that begins next; None: whoever asks waits for one that runs."""

    def __init__(self):
        self.waiting = []
        self.coming = None

    def after_sync(self, callback, concerns=None):
        self.waiting.append(callback)
        return self.coming

    def finish(self, error=None):
        self.waiting.pop(0)(error)


def channel():
    """The confirms of a channel, a disk, and what they wrote."""
    disk, written = Disk(), []
    return SimpleNamespace(confirms=Confirms(1, written.append, disk.after_sync), disk=disk, written=written)


def answers(written):
    """What was written, as ("ack" | "nack", number, multiple)."""
    reader = FrameReader(0)
    for octets in written:
        reader.feed(octets)
    found = []
    while (frame := reader.next_frame()) is not None:
        method = decode_method(frame[2])
        found.append(
            ("ack" if isinstance(method, BasicAck) else "nack", method.delivery_tag, method.multiple)
        )
    return found


def test_publish_to_a_queue_that_failed_in_an_earlier_flush_is_nacked_though_this_one_succeeds():
    told, queue = channel(), SimpleNamespace(failed=False)
    told.confirms.published(2, [], unsynced=((SimpleNamespace(failed=False), queue),))
    queue.failed = True

    told.disk.finish()

    assert answers(told.written) == [("nack", 2, True)]


def test_transient_publishes_are_confirmed_at_once_with_one_ack():
    told = channel()

    told.confirms.published(5, [], unsynced=())

    assert answers(told.written) == [("ack", 5, True)]


def test_single_publish_is_confirmed_alone():
    told = channel()
    told.confirms.published(5, [], unsynced=())

    told.confirms.published(6, [], unsynced=())

    assert answers(told.written)[1:] == [("ack", 6, False)]


def test_durable_publishes_are_confirmed_after_the_sync():
    told = channel()

    told.confirms.published(3, [], unsynced=QUEUES)

    assert told.written == []
    told.disk.finish()
    assert answers(told.written) == [("ack", 3, True)]


def test_refused_publishes_are_nacked_in_their_place():
    told = channel()

    told.confirms.published(7, [1, 4, 5], unsynced=())

    assert answers(told.written) == [
        ("nack", 1, False), ("ack", 3, True), ("nack", 4, False), ("nack", 5, False), ("ack", 7, True)
    ]


def test_transient_publishes_do_not_confirm_durable_ones_that_wait():
    told = channel()
    told.confirms.published(2, [], unsynced=QUEUES)

    told.confirms.published(4, [3], unsynced=())

    assert told.written == []
    told.disk.finish()
    assert answers(told.written) == [("ack", 2, True), ("nack", 3, False), ("ack", 4, False)]


def test_later_sync_that_ends_first_confirms_nothing_early():
    told = channel()
    told.confirms.published(2, [], unsynced=QUEUES)
    told.confirms.published(4, [], unsynced=QUEUES)

    told.disk.waiting.pop(1)(None)
    assert told.written == []
    told.disk.finish()

    assert answers(told.written) == [("ack", 2, True), ("ack", 4, True)]


def test_failed_sync_refuses_everything_it_covered():
    told = channel()
    told.confirms.published(3, [2], unsynced=QUEUES)
    told.confirms.published(5, [], unsynced=QUEUES)

    told.disk.finish(OSError("disk"))
    told.disk.finish()

    assert answers(told.written) == [("nack", 3, True), ("ack", 5, True)]


def test_publishes_of_many_reads_that_one_flush_covers_are_confirmed_by_one_ack():
    told = channel()
    told.disk.coming = NextFlush()
    for last in (2, 3, 7):
        told.confirms.published(last, [], unsynced=QUEUES)

    told.disk.finish()

    assert told.disk.waiting == [] and answers(told.written) == [("ack", 7, True)]


def test_refused_publishes_of_many_reads_that_one_flush_covers_are_nacked_in_their_place():
    told = channel()
    told.disk.coming = NextFlush()
    told.confirms.published(2, [1], unsynced=QUEUES)
    told.confirms.published(4, [], unsynced=())
    told.confirms.published(6, [5], unsynced=QUEUES)

    told.disk.finish()

    assert answers(told.written) == [
        ("nack", 1, False), ("ack", 4, True), ("nack", 5, False), ("ack", 6, False)
    ]


def test_publish_is_not_confirmed_by_a_flush_that_had_begun_before_it():
    told = channel()
    told.disk.coming = NextFlush()
    told.confirms.published(2, [], unsynced=QUEUES)
    told.disk.coming.has_begun = True
    told.confirms.published(3, [], unsynced=QUEUES)

    told.disk.finish()

    assert answers(told.written) == [("ack", 2, True)]
    told.disk.finish()
    assert answers(told.written) == [("ack", 2, True), ("ack", 3, False)]


def test_publishes_to_other_queues_hear_nothing_of_those_before_whose_queue_has_failed():
    told, queue, other = channel(), SimpleNamespace(name="a", failed=False), SimpleNamespace(failed=False)
    told.disk.coming = NextFlush()
    told.confirms.published(2, [], unsynced=((queue,),))
    told.confirms.published(4, [], unsynced=((other,),))
    queue.failed = True

    told.disk.finish()
    told.disk.finish()

    assert answers(told.written) == [("nack", 2, True), ("ack", 4, True)]


def test_nothing_is_confirmed_after_close():
    told = channel()
    told.confirms.published(3, [], unsynced=QUEUES)

    told.confirms.close()
    told.disk.finish()

    assert told.written == []


@given(st.lists(
    st.tuples(
        st.lists(st.booleans(), min_size=1, max_size=5), st.booleans(), st.sampled_from(["good", "bad"])
    ),
    max_size=12,
))
def test_every_publish_is_answered_exactly_once(batches):
    """Batches of publishes (True: refused), durable or not, with syncs that end well or badly: each number
    gets one answer, and only refused ones or those of a bad sync a nack."""
    told = channel()
    number, refused_all = 0, set()
    for publishes, durable, _ in batches:
        refused = [number + index + 1 for index, is_refused in enumerate(publishes) if is_refused]
        refused_all.update(refused)
        number += len(publishes)
        told.confirms.published(number, refused, QUEUES if durable else ())
    outcomes = [outcome for _, durable, outcome in batches if durable]
    bad = False
    for outcome in outcomes:
        bad = bad or outcome == "bad"
        told.disk.finish(OSError("disk") if outcome == "bad" else None)

    done, acked, nacked = 0, set(), set()
    for kind, tag, multiple in answers(told.written):
        numbers = range(done + 1, tag + 1) if multiple else [tag]
        (acked if kind == "ack" else nacked).update(numbers)
        assert tag > done
        done = tag
    assert acked | nacked == set(range(1, number + 1))
    assert not acked & nacked
    assert refused_all <= nacked
    if not bad:
        assert nacked == refused_all


def test_confirm_select_answers_and_may_be_repeated(client):
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)

    client.publish("nowhere")

    assert client.expect(BasicAck).delivery_tag == 1


def test_confirms_come_behind_confirm_select_ok(slow_disk_door):
    """A client that listens for them from then on misses none. On 7b959f01 the confirm comes first, if
    confirm.select-ok has to wait for an answer before it.
    """
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="durable", durable=True))
    client.send_method(ConfirmSelect())
    client.publish("durable")
    client.expect_silence()

    slow_disk_door.committer.finish()

    client.expect(QueueDeclareOk)
    client.expect(ConfirmSelectOk)
    assert client.expect(BasicAck).delivery_tag == 1


def test_confirm_select_without_wait_is_not_answered(client):
    client.send_method(ConfirmSelect(no_wait=True))

    client.publish("nowhere")

    assert client.expect(BasicAck).delivery_tag == 1


def test_confirm_select_on_a_transactional_channel_is_refused(client):
    client.call(TxSelect(), TxSelectOk)

    client.send_method(ConfirmSelect())

    client.expect_error(
        ChannelClose, 406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode", blamed=ConfirmSelect
    )


def test_publishes_of_one_read_share_one_confirm(client):
    client.call(ConfirmSelect(), ConfirmSelectOk)

    client.send(publish_frames("nowhere") * 50)

    ack = client.expect(BasicAck)
    assert (ack.delivery_tag, ack.multiple) == (50, True)
