"""The walk over what a load generator of MQTT receives: literal packets whole and octet by octet, what is
answered, what is counted as lost, doubled or late, and what is left to the worker.
"""
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.mqtt.wire.errors import MalformedPacket, MQTTError, PacketTooLarge
from gomq_py.perf.walk import BUCKETS, ArrivalCheck, LatencyHistogram, MQTTWalk, PacketWindow

QOS_0 = bytes.fromhex("30 05 0001 61 6869")
QOS_1 = bytes.fromhex("32 07 0001 61 0102 6869")
QOS_2 = bytes.fromhex("34 07 0001 61 0103 6869")
PUBREL = bytes.fromhex("62 02 0103")


def numbers(count=1):
    return memoryview(array("Q", [0] * count))


def checker(publishers=1, **options):
    return ArrivalCheck(numbers(publishers), numbers(publishers), numbers(publishers), **options)


def feed(walk, octets, now_ns=0):
    """One read's worth; how many messages it completed."""
    kept = walk.kept
    walk.buffer[kept:kept + len(octets)] = octets
    return walk.walk(kept + len(octets), now_ns)


def answers(walk):
    return bytes(walk.answers[:walk.answered])


def message(body):
    return bytes((0x30, 3 + len(body))) + b"\0\1a" + body


def numbered(publisher, number):
    return message((publisher << 48 | number).to_bytes(8, "little"))


def test_messages_of_each_qos_are_counted_and_answered():
    walk = MQTTWalk(4)

    assert feed(walk, QOS_0 + QOS_1 + QOS_2 + PUBREL) == 3
    assert (walk.delivered, walk.body_octets, walk.redelivered, walk.kept) == (3, 6, 0, 0)
    assert answers(walk) == bytes.fromhex("40 02 0102  50 02 0103  70 02 0103")


def test_octets_fed_one_by_one_are_counted_and_answered_the_same():
    walk = MQTTWalk(4)

    completed = [feed(walk, bytes((octet,))) for octet in QOS_0 + QOS_1 + QOS_2 + PUBREL]

    assert (sum(completed), walk.kept) == (3, 0)
    assert answers(walk) == bytes.fromhex("40 02 0102  50 02 0103  70 02 0103")


def test_properties_of_mqtt_5_are_no_part_of_the_body():
    walk = MQTTWalk(5)

    feed(walk, bytes.fromhex("32 0b 0001 61 0102 03 23 0007 6869"))

    assert (walk.delivered, walk.body_octets, answers(walk)) == (1, 2, bytes.fromhex("40 02 0102"))


def test_messages_with_dup_are_counted_as_redelivered():
    walk = MQTTWalk(4)

    feed(walk, bytes.fromhex("3a 05 0001 61 0001"))

    assert (walk.delivered, walk.redelivered) == (1, 1)


def test_acknowledgements_are_settled_and_pubrec_is_answered():
    window = PacketWindow(4)
    walk = MQTTWalk(4, window=window)

    feed(walk, bytes.fromhex("40 02 0001  50 02 0002  70 02 0003"))

    assert (window.confirmed, window.low) == (2, 2)
    assert answers(walk) == bytes.fromhex("62 02 0002")


def test_what_is_no_part_of_the_load_is_left_to_the_worker():
    walk = MQTTWalk(5)

    feed(walk, bytes.fromhex("90 04 0001 00 01  40 03 0001 10  e0 01 8b  d0 00"))

    assert [packet.NAME for packet in walk.others] == ["SUBACK", "PUBACK", "DISCONNECT", "PINGRESP"]


@pytest.mark.parametrize(("octets", "error"), [
    (bytes.fromhex("36 05 0001 61 0001"), MalformedPacket), (bytes.fromhex("30 ff7f 0001"), PacketTooLarge),
    (bytes.fromhex("30 01 00"), MalformedPacket),
])
def test_faulty_packets_end_the_walk(octets, error):
    with pytest.raises(error):
        feed(MQTTWalk(4, packet_octets=1000), octets)


def test_more_than_the_buffer_holds_is_refused():
    walk = MQTTWalk(4)

    with pytest.raises(IndexError):
        walk.walk(len(walk.buffer) + 1, 0)


def test_answers_that_are_never_taken_do_not_overflow():
    walk = MQTTWalk(4, read_octets=100, packet_octets=100)

    with pytest.raises(IndexError):
        for _ in range(100):
            feed(walk, PUBREL * 10)


def test_numbers_in_order_are_in_order_per_publisher():
    check = checker(2)
    walk = MQTTWalk(4, check=check, sequence_at=0)

    feed(walk, b"".join(numbered(*each) for each in ((0, 0), (1, 0), (0, 1), (1, 5), (0, 2))))

    assert (check.misordered, check.doubled, check.corrupt) == (0, 0, 0)


def test_late_and_doubled_messages_are_told_apart():
    following, counts, sums = numbers(), numbers(), numbers()
    check = ArrivalCheck(following, counts, sums)

    for number in (0, 2, 1, 3, 3, 0, 5):
        check.note(number)

    assert (check.misordered, check.doubled) == (1, 2)
    assert (following[0], counts[0], sums[0]) == (6, 5, 11)


@given(st.lists(st.integers(0, 40), max_size=60))
def test_every_arrival_is_new_late_or_a_double(arrivals):
    """Against a set of all that came."""
    counts = numbers()
    check = ArrivalCheck(numbers(), counts, numbers())
    seen: set = set()
    late = doubled = 0
    for number in arrivals:
        check.note(number)
        if number in seen:
            doubled += 1
        elif seen and number < max(seen):
            late += 1
        seen.add(number)

    assert (counts[0], check.misordered, check.doubled) == (len(seen), late, doubled)


def test_what_is_older_than_is_remembered_counts_as_late():
    check = checker(65536)  # so many that each has 64 numbers

    for number in (0, 500, 0, 500):
        check.note(number)

    assert (check.misordered, check.doubled) == (1, 1)


def test_numbers_that_were_skipped_are_not_taken_for_doubles():
    check = checker(65536)

    for number in (*range(64), 200, 150, 190):
        check.note(number)

    assert (check.misordered, check.doubled) == (2, 0)


@pytest.mark.parametrize("body", [(5 << 48).to_bytes(8, "little"), b"short"])
def test_a_body_that_nobody_published_is_corrupt(body):
    check = checker()

    feed(MQTTWalk(4, check=check, sequence_at=0), message(body))

    assert check.corrupt == 1


def test_the_rest_of_a_body_is_compared_with_what_was_published():
    check = checker(filler=b"abcdefghijklmnop", filled_from=8)
    walk = MQTTWalk(4, check=check, sequence_at=0)

    feed(walk, message(bytes(8) + b"ijkl") + message((1).to_bytes(8, "little") + b"ijkx"))

    assert (walk.delivered, check.corrupt) == (2, 1)


def test_latencies_are_taken_from_the_stamp_to_the_read():
    counts = memoryview(array("Q", bytes(8 * BUCKETS)))
    walk = MQTTWalk(4, latencies=LatencyHistogram(counts), timestamp_at=0)

    feed(walk, message((1000).to_bytes(8, "little")) + message(b"tiny"), now_ns=1050)

    assert (counts[50], sum(counts)) == (1, 1)


@settings(max_examples=50)
@given(st.data())
def test_the_window_counts_every_publish_once_though_identifiers_go_round(data):
    window = PacketWindow(20)
    published = 65500
    for number in range(published):
        window.note_packet_confirm(number % 65535 + 1, False)
    settled: set = set()
    for _ in range(data.draw(st.integers(1, 30))):
        oldest = min(set(range(65500, published + 1)) - settled)
        published += data.draw(st.integers(0, 20 - (published - oldest)))
        if published > oldest:
            number = data.draw(st.integers(oldest, published - 1))
            window.note_packet_confirm(number % 65535 + 1, False)
            settled.add(number)

    assert window.confirmed == 65500 + len(settled)


@pytest.mark.parametrize("identifier", [1, 200, 65535])
def test_acknowledgements_of_what_was_not_published_are_ignored(identifier):
    window = PacketWindow(5)
    window.note_packet_confirm(1, False)

    window.note_packet_confirm(identifier, False)

    assert window.confirmed == 1


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=20) | st.sampled_from((QOS_0, QOS_1, QOS_2, PUBREL)), max_size=8))
def test_any_octets_are_walked_or_refused(pieces):
    walk = MQTTWalk(4, 1024, 1024, check=checker(), sequence_at=0)
    octets = b"".join(pieces)

    try:
        feed(walk, octets)
    except MQTTError:
        return

    assert walk.kept <= len(octets)
