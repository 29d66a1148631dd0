"""The walk over what a load generator receives: whole, byte by byte, with trailing bytes,
malformed and fuzzed.
"""
import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.amqp.wire.errors import FrameError
from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, FrameReader, content_frames, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicDeliver, BasicGetEmpty, BasicGetOk, BasicNack, BasicReturn, ChannelClose, TxCommitOk,
    decode_method,
)
from gomq_py.perf.walk import (
    BUCKETS, REGION_OCTETS, ConfirmWindow, FrameWalk, LatencyHistogram, SequenceCheck, lower_bound, summarize,
)


def delivery(tag, body=b"body", redelivered=False, frame_max=131072):
    method = BasicDeliver(
        consumer_tag="tag", delivery_tag=tag, redelivered=redelivered, exchange="x", routing_key="k"
    )
    return method_frame(1, method) + content_frames(1, b"\x10\x00\x02", body, frame_max)


def numbers(count=1):
    return memoryview(array("Q", [0] * count))


def checker(publishers=1, **options):
    return SequenceCheck(numbers(publishers), numbers(publishers), numbers(publishers), **options)


def feed(walk, octets, now_ns=0):
    """One read's worth; how many deliveries it completed."""
    kept = walk.kept
    walk.buffer[kept:kept + len(octets)] = octets
    return walk.walk(kept + len(octets), now_ns)


def answers(walk):
    reader = FrameReader(0)
    reader.feed(bytes(walk.answers[:walk.answered]))
    return [decode_method(payload) for _, _, payload in iter(reader.next_frame, None)]


def test_deliveries_are_counted():
    walk = FrameWalk(4096)

    assert feed(
        walk, delivery(1) + delivery(2, b"", redelivered=True) + HEARTBEAT_FRAME + delivery(3, b"x" * 100)
    ) == 3
    assert (walk.delivered, walk.body_octets, walk.redelivered, walk.last_tag, walk.kept) == (3, 104, 1, 3, 0)


def test_octets_fed_one_by_one_are_counted_the_same():
    walk = FrameWalk(4096)

    completed = [feed(walk, bytes((octet,))) for octet in delivery(1) + delivery(2, b"") + delivery(3)]

    assert (sum(completed), walk.delivered, walk.kept) == (3, 3, 0)


@pytest.mark.parametrize("length", range(1, len(delivery(2))))
def test_an_incomplete_delivery_waits_for_its_rest(length):
    walk = FrameWalk(4096)

    assert feed(walk, delivery(1) + delivery(2)[:length]) == 1
    assert feed(walk, delivery(2)[length:]) == 1


def test_a_body_of_many_frames_is_one_delivery():
    walk = FrameWalk(4096)

    assert feed(walk, delivery(1, bytes(10000), frame_max=4096)) == 1
    assert walk.body_octets == 10000


def test_get_ok_is_a_delivery_and_get_empty_is_not():
    walk = FrameWalk(4096)

    feed(
        walk,
        method_frame(
            1, BasicGetOk(delivery_tag=9)
        ) + content_frames(1, b"\x00\x00", b"m", 4096) + method_frame(1, BasicGetEmpty()),
    )

    assert (walk.delivered, walk.last_tag, walk.empty_gets) == (1, 9, 1)


def test_a_returned_message_is_not_a_delivery():
    walk = FrameWalk(4096)

    feed(
        walk,
        method_frame(
            1, BasicReturn(reply_code=312)
        ) + content_frames(1, b"\x00\x00", b"m", 4096) + delivery(1),
    )

    assert (walk.returned, walk.delivered) == (1, 1)


def test_methods_that_are_no_load_are_kept_for_the_worker():
    walk = FrameWalk(4096)

    feed(walk, method_frame(1, TxCommitOk()) + method_frame(1, ChannelClose(reply_code=404)) + delivery(1))

    assert [type(decode_method(payload)) for payload in walk.others] == [TxCommitOk, ChannelClose]
    assert walk.delivered == 1


def test_each_message_is_acked_when_asked():
    walk = FrameWalk(4096, ack_every=1)

    feed(walk, delivery(1) + delivery(2))

    assert answers(walk) == [BasicAck(delivery_tag=1), BasicAck(delivery_tag=2)]


def test_every_nth_message_acks_all_before_it():
    walk = FrameWalk(4096, ack_every=3)

    feed(walk, b"".join(delivery(tag) for tag in range(1, 9)))

    assert answers(walk) == [BasicAck(delivery_tag=3, multiple=True), BasicAck(delivery_tag=6, multiple=True)]


def test_the_rest_is_acked_once_at_the_end():
    walk = FrameWalk(4096, ack_every=3)
    feed(walk, b"".join(delivery(tag) for tag in range(1, 6)))
    walk.answered = 0

    walk.ack_rest()
    walk.ack_rest()

    assert answers(walk) == [BasicAck(delivery_tag=5, multiple=True)]


def test_without_acks_nothing_is_answered():
    walk = FrameWalk(4096)
    feed(walk, delivery(1))

    walk.ack_rest()

    assert walk.answered == 0


def test_confirms_are_counted_singly_and_multiple():
    window = ConfirmWindow(10)
    confirms = (BasicAck(delivery_tag=2), BasicAck(delivery_tag=4, multiple=True), BasicNack(delivery_tag=5))

    feed(FrameWalk(4096, window=window), b"".join(method_frame(1, method) for method in confirms))

    assert (window.confirmed, window.refused) == (5, 1)


@given(st.data())
def test_the_window_counts_every_publish_once_in_any_order(data):
    window = ConfirmWindow(20)
    settled: set = set()
    published = 0
    for _ in range(data.draw(st.integers(1, 15))):
        published += data.draw(st.integers(0, 20 - (published - len(settled))))
        if published == 0:
            continue
        tag = data.draw(st.integers(1, published))
        if data.draw(st.booleans()):
            window.note_confirm(tag, True, False)
            settled |= set(range(1, tag + 1))
        else:
            window.note_confirm(tag, False, False)
            settled.add(tag)

    assert window.confirmed == len(settled)


def test_refused_publishes_are_counted_among_the_settled():
    window = ConfirmWindow(5)

    window.note_confirm(1, False, True)
    window.note_confirm(3, True, False)
    window.note_confirm(3, False, True)

    assert (window.confirmed, window.refused) == (3, 1)


def test_confirms_are_timed_from_when_each_message_was_sent():
    region = array("Q", bytes(REGION_OCTETS))
    window = ConfirmWindow(5, LatencyHistogram(memoryview(region)))
    walk = FrameWalk(4096, window=window)
    window.note_sent(1, 2, 1_000_000)
    window.note_sent(3, 3, 3_000_000)

    feed(walk, method_frame(1, BasicAck(delivery_tag=3, multiple=True)), now_ns=5_000_000)

    figures = summarize([region])
    assert figures["count"] == 3
    assert figures["min"] == pytest.approx(2, rel=0.02) and figures["max"] == pytest.approx(4, rel=0.02)


def test_a_window_that_measures_nothing_notes_nothing():
    window = ConfirmWindow(5)

    window.note_sent(1, 1_000_000, 7)

    assert window.confirmed == 0


@pytest.mark.parametrize("tag", [0, 100, 2**64 - 1])
def test_confirms_of_what_was_not_published_are_ignored(tag):
    window = ConfirmWindow(5)

    window.note_confirm(tag, True, False)

    assert window.confirmed == 0


def numbered(publisher, number, length=8):
    return (publisher << 48 | number).to_bytes(8, "little") + b"." * (length - 8)


def test_numbers_in_order_are_in_order_per_publisher():
    check = checker(2)
    walk = FrameWalk(4096, check=check, sequence_at=0)

    feed(
        walk, b"".join(delivery(1, numbered(*number)) for number in ((0, 0), (1, 0), (0, 1), (1, 5), (0, 2)))
    )

    assert (check.misordered, check.corrupt) == (0, 0)
    assert walk.delivered == 5


def test_a_number_that_comes_late_or_twice_is_out_of_order():
    counts, sums = numbers(), numbers()
    check = SequenceCheck(numbers(), counts, sums)
    walk = FrameWalk(4096, check=check, sequence_at=0)

    feed(walk, b"".join(delivery(1, numbered(0, number)) for number in (0, 2, 1, 3, 3)))

    assert (check.misordered, counts[0], sums[0]) == (2, 5, 9)


@pytest.mark.parametrize("body", [numbered(5, 0), b"short", b"x" * 8])
def test_a_body_that_nobody_published_is_corrupt(body):
    check = checker()

    feed(FrameWalk(4096, check=check, sequence_at=0), delivery(1, body))

    assert check.corrupt == 1


@pytest.mark.parametrize(("rest", "corrupt"), [(b"ijkl", 0), (b"ijkx", 1), (b"ijklmnop-", 1), (b"", 0)])
def test_the_rest_of_a_body_is_compared_with_what_was_published(rest, corrupt):
    check = checker(filler=b"abcdefghijklmnop", filled_from=8)

    feed(FrameWalk(4096, check=check, sequence_at=0), delivery(1, numbered(0, 0) + rest))

    assert check.corrupt == corrupt


@pytest.mark.parametrize("cut_at", [4090, 4100, 8180, 9999])
def test_a_body_of_many_frames_is_compared_to_its_end(cut_at):
    content = bytes(range(250)) * 40
    body = bytearray(numbered(0, 0) + content[8:])
    walk = FrameWalk(4096, check=checker(filler=content, filled_from=8), sequence_at=0)

    feed(walk, delivery(1, bytes(body), frame_max=4096))
    whole = walk.check.corrupt
    body[cut_at] ^= 1
    feed(walk, delivery(2, bytes(body).replace(numbered(0, 0), numbered(0, 1), 1), frame_max=4096))

    assert (whole, walk.check.corrupt) == (0, 1)


def test_latencies_are_taken_from_the_stamp_to_the_read():
    counts = memoryview(array("Q", bytes(8 * BUCKETS)))
    walk = FrameWalk(4096, latencies=LatencyHistogram(counts), timestamp_at=0)

    feed(
        walk,
        delivery(
            1, (1000).to_bytes(8, "little")
        ) + delivery(2, (990).to_bytes(8, "little")) + delivery(3, b"tiny"),
        now_ns=1050,
    )

    assert (counts[50], counts[60], sum(counts)) == (1, 1, 2)


@pytest.mark.parametrize(("octets", "reason"), [
    (delivery(1)[:-1] + b"\x00", "ends with byte 0"),
    (b"\x02\x00\x01\x00\x00\x00\x02\x00\x00\xce", "content header of 2 bytes"),
    (b"\x03\x00\x01\x00\x00\x00\x01x\xce", "longer than its header"),
    (b"\x03\x00\x01\xff\xff\xff\xff\x00", "larger than was agreed"),
])
def test_malformed_frames_end_the_walk(octets, reason):
    with pytest.raises(FrameError, match=reason):
        feed(FrameWalk(4096), octets)


@pytest.mark.parametrize("payload", [
    b"", b"\x00", b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x3c\xff" + bytes(12), b"\x00\x3c\x00\x50\x00"
])
def test_a_cut_method_is_left_to_the_worker(payload):
    walk = FrameWalk(4096)

    feed(walk, b"\x01\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce")

    assert walk.others == [payload]


def test_more_than_the_buffer_holds_is_refused():
    walk = FrameWalk(4096)

    with pytest.raises(IndexError):
        walk.walk(len(walk.buffer) + 1, 0)


def test_empty_messages_without_end_do_not_overflow_the_answers():
    walk = FrameWalk(4096, read_octets=65536, ack_every=1)
    # completes a message though no method came before
    header = b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + bytes(10) + b"\xce"

    with pytest.raises(FrameError):
        feed(walk, header * (len(walk.buffer) // len(header)))


@settings(max_examples=300)
@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from((delivery(1), delivery(2, b""), HEARTBEAT_FRAME)), max_size=8
    ),
    st.data(),
)
def test_any_octets_are_walked_or_refused(pieces, data):
    walk = FrameWalk(256, check=checker(), sequence_at=0, ack_every=1)
    octets = bytearray(b"".join(pieces))
    if octets:
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))

    try:
        feed(walk, bytes(octets))
    except FrameError:
        return

    assert walk.kept <= len(octets)


def region():
    return memoryview(array("Q", bytes(8 * BUCKETS)))


def counted(values):
    counts = region()
    histogram = LatencyHistogram(counts)
    for value in values:
        histogram.add(value)
    return counts


@given(st.integers(0, 2**45 - 1))
def test_a_value_falls_into_the_bucket_that_begins_at_most_a_64th_below_it(value):
    counts = counted([value])
    index = list(counts).index(1)

    assert lower_bound(index) <= value <= lower_bound(index) * (1 + 1 / 64) + 1


@pytest.mark.parametrize("value", [2**45, 2**50, 2**63, 2**64 - 1])
def test_a_value_beyond_all_buckets_stays_in_the_region(value):
    assert sum(counted([value])) == 1


def test_nothing_counted_is_a_count_of_zero():
    assert summarize([region(), region()]) == {"count": 0}


def test_percentiles_over_several_regions_are_those_of_all_values():
    chance = random.Random(1)
    values = [int(chance.expovariate(1 / 200_000)) for _ in range(20000)]

    summary = summarize([counted(values[:5000]), counted(values[5000:])])

    values.sort()
    assert summary["count"] == 20000
    for name, share in (("median", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        assert summary[name] == pytest.approx(values[int(share * 20000) - 1] / 1e6, rel=0.02)
    assert summary["min"] == pytest.approx(values[0] / 1e6, rel=0.02)
    assert summary["max"] == pytest.approx(values[19999] / 1e6, rel=0.02)


def test_one_value_is_every_percentile():
    summary = summarize([counted([1_000_000])])

    assert {summary[name] for name in ("min", "median", "p75", "p95", "p99", "p999", "max")} == {
        lower_bound(list(counted([1_000_000])).index(1)) / 1e6
    }
