"""An AMQP consumer: the frames it writes, its credit, and what a full socket does to it."""
import os
import struct

import gevent
import pytest

from gomq_py.amqp.server.delivery import AMQPConsumer
from gomq_py.amqp.server.fast_lane import HotChannel
from gomq_py.broker.features.retry import FAILED
from gomq_py.broker.policies.queue_settings import QueueSettings
from gomq_py.broker.queues.limits import QueueLimits
from gomq_py.broker.queues.queue import Queue
from gomq_py.content.fields import encode_table
from gomq_py.hub.buffers import HubBuffers
from gomq_py.net.output import Output
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message
from tests.support import crossing
from tests.support.lanes import content_header, frame, short
from tests.support.no_switch import no_switch
from tests.support.queues import Bench, message
from tests.support.sockets import receive_exactly, socket_pair
from tests.support.waiting import in_time, wait_until


def delivery(
    body, tag=1, routing_key=b"q", exchange=b"", properties=b"\0\0", redelivered=False, consumer_tag=b"c",
    channel=1, frame_max=131072,
):
    """The frames of one basic.deliver, built from the spec's tables."""
    method = struct.pack(
        ">HH", 60, 60
    ) + short(consumer_tag) + struct.pack(">QB", tag, redelivered) + short(exchange) + short(routing_key)
    part = frame_max - 8
    bodies = [frame(3, channel, body[at:at + part]) for at in range(0, len(body), part)]
    return frame(1, channel, method) + content_header(len(body), properties, channel) + b"".join(bodies)


class Client:
    """One connection with channel 1, on a bench of queues; ``peer`` is the client's end."""

    def __init__(self, bench, buffer_octets=None, buffers=None):
        self.bench = bench
        ours, self.peer = socket_pair(buffer_octets)
        self.socket = ours
        self.output = Output(ours, buffers or HubBuffers())
        self.channel = HotChannel(1)

    def consume(self, queue, tag="c", **options):
        consumer = AMQPConsumer(self.output, self.channel, queue, tag, **options)
        self.channel.consumers[tag] = consumer
        consumer.start()
        self.bench.settle()
        return consumer

    def receive(self, frames):
        assert receive_exactly(self.peer, len(frames)) == frames

    def received_nothing(self):
        self.peer.setblocking(False)
        try:
            self.peer.recv(1)
        except BlockingIOError:
            return True
        return False

    def close(self):
        self.output.close()
        self.socket.close()
        self.peer.close()


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def queue(bench):
    return bench.queue()


@pytest.fixture
def client(bench):
    client = Client(bench)
    yield client
    client.close()


def publish(bench, queue, *bodies, **fields):
    bench.publish(queue, *bodies, **fields)
    bench.settle()


@pytest.mark.parametrize("body", [b"", b"hello", b"x" * 131064, b"y" * 131065, b"z" * 400_000], ids=len)
def test_a_message_arrives_as_deliver_header_and_body_frames(bench, queue, client, body):
    client.consume(queue, no_ack=True)

    publish(bench, queue, body)

    client.receive(delivery(body))


def test_bodies_are_cut_at_the_negotiated_frame_size(bench, queue, client):
    client.consume(queue, no_ack=True, frame_max=4096)

    publish(bench, queue, b"x" * 10_000)

    client.receive(delivery(b"x" * 10_000, frame_max=4096))


def test_names_and_properties_arrive_as_they_were_sent(bench, queue, client):
    client.consume(queue, tag="tag-é", no_ack=True)

    publish(bench, queue, b"b", exchange=b"x" * 255, routing_key=b"k" * 255, properties=b"\x80\x00\x03abc")

    client.receive(delivery(
        b"b", exchange=b"x" * 255, routing_key=b"k" * 255, properties=b"\x80\x00\x03abc",
        consumer_tag="tag-é".encode()))


def test_tags_count_all_deliveries_of_the_channel(bench, queue, client):
    client.consume(queue, no_ack=True)
    other = bench.queue("other")
    client.consume(other, tag="d")

    publish(bench, queue, b"a")
    publish(bench, other, b"b")
    publish(bench, queue, b"c")

    client.receive(delivery(b"a") + delivery(b"b", tag=2, consumer_tag=b"d") + delivery(b"c", tag=3))
    assert client.channel.ack(2, False) and not client.channel.ack(1, False)


def test_a_requeued_message_comes_again_and_says_so(bench, queue, client):
    client.consume(queue)
    publish(bench, queue, b"a")

    assert client.channel.reject(1, False, True)
    bench.settle()

    client.receive(delivery(b"a") + delivery(b"a", tag=2, redelivered=True))


def test_no_more_than_the_prefetch_is_outstanding(bench, queue, client):
    client.consume(queue, prefetch=2)
    publish(bench, queue, b"a", b"b", b"c", b"d")
    client.receive(delivery(b"a") + delivery(b"b", tag=2))
    assert (queue.ready_count, queue.unacked_count) == (2, 2)

    client.channel.ack(1, False)
    bench.settle()

    client.receive(delivery(b"c", tag=3))
    assert client.received_nothing()


def test_consumers_of_a_channel_share_its_global_prefetch(bench, queue, client):
    other = bench.queue("other")
    client.channel.global_prefetch = 3
    client.consume(queue)
    client.consume(other, tag="d")

    publish(bench, queue, b"a", b"b")
    publish(bench, other, b"c", b"d")
    assert (queue.unacked_count, other.unacked_count) == (2, 1)
    client.channel.ack(2, True)
    bench.settle()

    assert (queue.unacked_count, other.unacked_count) == (0, 2)


def test_messages_of_basic_get_use_no_credit(bench, queue, client):
    client.channel.global_prefetch = 1
    publish(bench, queue, b"got", b"a")
    held = client.channel.unacked.make_holder(queue, None)
    got = message()
    queue.get(got, False)
    client.channel.unacked.add(held, got.describe()["location"], 3, 1)

    client.consume(queue)

    client.receive(delivery(b"a", tag=2))


def test_prefetch_does_not_hold_back_what_needs_no_ack(bench, queue, client):
    client.consume(queue, no_ack=True, prefetch=1)

    publish(bench, queue, b"a", b"b")

    client.receive(delivery(b"a") + delivery(b"b", tag=2))
    assert (queue.ready_count, queue.unacked_count) == (0, 0)


def test_a_socket_that_is_full_holds_up_nobody_else(bench, queue, client):
    """The stuck client takes what fits its socket; the other gets the rest,
    and the stuck one goes on when it reads again.
    """
    stuck = Client(bench, 16384)
    stuck.consume(queue, no_ack=True)
    client.consume(queue, no_ack=True)
    body = b"x" * 10_000

    with no_switch():
        for _ in range(14):
            bench.publish(queue, body)
    bench.settle()

    assert stuck.output.blocked and queue.ready_count == 0
    held = stuck.channel.unacked.next_tag - 1
    assert held < 10
    client.receive(b"".join(delivery(body, tag) for tag in range(1, 15 - held)))
    stuck.receive(b"".join(delivery(body, tag) for tag in range(1, held + 1)))
    wait_until(lambda: not stuck.output.blocked, sleep=gevent.sleep)
    publish(bench, queue, b"again", b"again")
    stuck.receive(delivery(b"again", held + 1))
    stuck.close()


def test_a_backlog_flows_at_the_pace_of_the_socket(bench, queue):
    """A megabyte for a client with small buffers that reads it all: delivered in order, never more than a
    full buffer kept in memory.
    """
    client = Client(bench, 16384)
    bodies = [b"%05d" % number + b"x" * 995 for number in range(1000)]
    bench.publish(queue, *bodies)
    client.consume(queue, no_ack=True)
    expected = b"".join(delivery(body, tag) for tag, body in enumerate(bodies, 1))
    got = bytearray()

    def reads_and_polls():
        assert client.output.pending_octets() <= 256 * 1024
        got.extend(client.peer.recv(65536))
        bench.settle()
        return len(got) == len(expected)

    client.peer.settimeout(in_time(30))
    wait_until(reads_and_polls, sleep=gevent.sleep)

    assert got == expected
    client.close()


def test_a_stopped_consumer_gets_nothing_but_keeps_what_it_holds_unacked(bench, queue, client):
    consumer = client.consume(queue)
    publish(bench, queue, b"a")

    consumer.stop()
    publish(bench, queue, b"b")

    client.receive(delivery(b"a"))
    assert client.received_nothing()
    assert client.channel.ack(1, False)
    assert (queue.ready_count, queue.unacked_count) == (1, 0)


def test_a_closed_channel_gives_everything_back_in_order(bench, queue, client):
    client.consume(queue)
    publish(bench, queue, *[b"%d" % number for number in range(50)])

    client.channel.close(bench.scheduler)
    bench.settle()

    other = Client(bench)
    other.consume(queue, no_ack=True)
    other.receive(b"".join(delivery(b"%d" % number, number + 1, redelivered=True) for number in range(50)))
    other.close()


def test_a_channel_with_very_much_unacked_gives_it_back_in_slices_and_in_order(bench, queue, client):
    """25 000 messages: ten slices, and nothing that came later overtakes them."""
    client.consume(queue)
    bodies = [b"%d" % number for number in range(25_000)]
    bench.scheduler.begin(1)
    for body in bodies:
        queue.publish(message(body))
    bench.scheduler.finish()
    expected = sum(len(delivery(body, 1)) for body in bodies)

    def reads():
        bench.settle()
        client.peer.setblocking(False)
        try:
            reads.count += len(client.peer.recv(1 << 20))
        except BlockingIOError:
            pass
        return reads.count == expected

    reads.count = 0
    wait_until(reads, sleep=gevent.sleep)
    assert queue.unacked_count == 25_000
    client.channel.close(bench.scheduler)
    bench.publish(queue, b"later")
    assert 0 < queue.unacked_count < 25_000

    got, each = [], message()
    assert not queue.get(each, True)
    bench.settle()
    while queue.get(each, True):
        got.append(each.get_body())

    assert got == [*bodies, b"later"]


def test_a_queue_that_goes_tells_the_peer_through_the_channel(bench, queue, client):
    told = []
    consumer = client.consume(queue, on_cancel=lambda consumer, reason: told.append((consumer.tag, reason)))

    queue.delete()

    assert told == [("c", "queue 'q' in vhost '/' deleted")] and not consumer.started


class IllQueue(Queue):
    """Shows ``sound`` messages and fails over the next."""

    sound = 2
    error = StoreError("msgs.1", 7, "input/output error")

    def peek(self, message):
        if self.delivered == self.sound:
            raise self.error
        return super().peek(message)


@pytest.mark.parametrize("error", [IllQueue.error, ZeroDivisionError("a fault of ours")])
def test_deliveries_before_a_message_that_cannot_be_read_are_sent_with_their_tags(
    bench, client, caplog, error
):
    """They are taken, and the channel holds them unacked: the client has to hear of them.

    The queue closes, with a line in the log.
    """
    queue = bench.queue("ill", IllQueue)
    queue.error = error
    consumer = client.consume(queue)

    publish(bench, queue, b"1", b"2", b"3")

    client.receive(delivery(b"1") + delivery(b"2", tag=2))
    assert queue.closed and not consumer.started and client.channel.unacked.count == 2
    assert "queue 'ill' in vhost '/' closed: " in caplog.text
    assert "input/output error" in caplog.text or "ZeroDivisionError: a fault of ours" in caplog.text


# content that came over MQTT

# A PUBLISH to a/b.c with QoS 1 and the content type t, as basic properties.
TRANSLATED = (
    b"\xb0\x00\x01t\x00\x00\x00\x2a\x0amqtt.topicS\x00\x00\x00\x05a/b.c\x12x-mqtt-publish-qosB\x01\x02")
# What nobody can read: properties of a PUBLISH that do not end, and a kind that no door has.
UNREADABLE = {
    "malformed": lambda: crossing.stored("a", block=b"\x03\x00\x09t"),
    "unknown": lambda: of_kind(message(b"unreadable"), 250),
}


def of_kind(made, kind):
    made.set_kind(kind)
    return made


def put(bench, queue, *messages):
    bench.scheduler.begin(bench.now_ms)
    assert [queue.publish(each) for each in messages] == [1] * len(messages)
    bench.scheduler.finish()
    bench.settle()


def over_mqtt(body=b"body", **values):
    return crossing.stored("a/b.c", {"content_type": "t", **values}, qos=1, body=body)


def from_mqtt(body=b"body", properties=TRANSLATED, **options):
    return delivery(body, exchange=b"amq.topic", routing_key=b"a.b/c", properties=properties, **options)


@pytest.mark.parametrize("no_ack", [True, False])
def test_what_came_over_mqtt_is_delivered_with_basic_properties(bench, queue, client, no_ack):
    client.consume(queue, no_ack=no_ack)

    put(bench, queue, message(b"a"), over_mqtt(), message(b"b"))

    client.receive(delivery(b"a") + from_mqtt(tag=2) + delivery(b"b", tag=3))
    assert client.channel.ack(2, False) is not no_ack


@pytest.mark.parametrize("body", [b"", b"x" * 131064, b"y" * 131065, b"z" * 400_000], ids=len)
def test_large_messages_that_came_over_mqtt_arrive(bench, queue, client, body):
    client.consume(queue, no_ack=True)

    for tag in (1, 2):
        put(bench, queue, over_mqtt(body))
        client.receive(from_mqtt(body, tag=tag))


def test_properties_that_came_over_mqtt_fit_into_the_smallest_frame(bench, queue, client):
    """User properties that do not fit are left out, and the header frame has no more than 4096 octets."""
    client.consume(queue, no_ack=True, frame_max=4096)

    put(bench, queue, over_mqtt(user_property=[("k", "v" * 1000)] * 8))

    entry = b"\x01kS\x00\x00\x03\xe8" + b"v" * 1000
    properties = TRANSLATED.replace(b"\x00\x00\x00\x2a", b"\x00\x00\x0b\xf7")[:-1] + entry * 3 + b"\x02"
    client.receive(from_mqtt(properties=properties))
    assert len(content_header(4, properties)) <= 4096


def test_many_messages_that_came_over_mqtt_fill_several_buffers(bench, queue):
    client = Client(bench, buffers=HubBuffers(output_octets=4096))
    client.consume(queue, no_ack=True)

    put(bench, queue, *[over_mqtt(b"%d" % number) for number in range(100)])

    client.receive(b"".join(from_mqtt(b"%d" % number, tag=number + 1) for number in range(100)))
    client.close()


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("no_ack", [True, False])
@pytest.mark.parametrize("what", UNREADABLE)
def test_what_nobody_can_read_is_set_aside_and_others_go_on(bench, queue, client, what, no_ack, limited):
    if limited:
        queue.limits = QueueLimits(queue, None, bench.timers, None)
        queue.limits.configure(QueueSettings({"x-delivery-limit": 3, "x-max-length": 100}))
    client.consume(queue, no_ack=no_ack)
    unreadable = UNREADABLE[what]

    put(bench, queue, unreadable(), message(b"a"), unreadable(), over_mqtt(), unreadable())

    client.receive(delivery(b"a") + from_mqtt(tag=2))
    assert not queue.closed and queue.aside.count == 3
    assert [reason.split(":")[0] for reason in queue.aside.reasons] == ["delivering it"]
    assert (queue.ready_count, queue.unacked_count) == (0, 3 if no_ack else 5)


@pytest.mark.parametrize("what", UNREADABLE)
def test_large_message_that_nobody_can_read_is_set_aside(bench, queue, client, what):
    client.consume(queue)
    large = UNREADABLE[what]()
    large.assign(b"", b"q", large.get_raw(), b"x" * 300_000, 1)
    large.set_kind({"malformed": 2, "unknown": 250}[what])

    put(bench, queue, large, message(b"a"))

    client.receive(delivery(b"a"))
    assert queue.aside.count == 1


def test_very_many_messages_that_nobody_can_read_give_others_their_turn(bench, queue, client):
    put(bench, queue, *[UNREADABLE["unknown"]() for _ in range(1000)], message(b"a"))
    bench.loop.poll = counted = Counted(bench.loop.poll)

    client.consume(queue)

    client.receive(delivery(b"a"))
    assert counted.calls > 3 and queue.aside.count == 1000


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("no_ack", [True, False])
def test_get_passes_over_what_nobody_can_read(bench, queue, what, no_ack):
    put(bench, queue, UNREADABLE[what](), over_mqtt(), UNREADABLE[what]())
    got = Message()

    assert queue.get(got, no_ack) and got.get_properties() == TRANSLATED
    assert not queue.get(Message(), no_ack)

    assert queue.aside.count == 2
    assert [reason.split(":")[0] for reason in queue.aside.reasons] == ["getting it"]


class Counted:
    """A function, and how often it was called."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self):
        self.calls += 1
        return self.function()


# messages that have a file of their own, and are sent from it

LARGE = bytes(range(256)) * (9 << 12)


@pytest.fixture
def sent_from_files(monkeypatch):
    """Octets that the system sent from files."""
    counted, sendfile = [], os.sendfile

    def counting(*arguments):
        counted.append(sendfile(*arguments))
        return counted[-1]

    monkeypatch.setattr(os, "sendfile", counting)
    return counted


@pytest.mark.parametrize("no_ack", [True, False])
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_message_with_a_file_of_its_own_is_sent_from_it(
    bench, client, sent_from_files, frame_max, durable, no_ack,
):
    queue = bench.queue(durable=durable)
    client.consume(queue, no_ack=no_ack, frame_max=frame_max)

    publish(bench, queue, b"a", LARGE, b"b", properties=b"\x80\x00\x03abc")

    for tag, body in enumerate((b"a", LARGE, b"b"), 1):
        wait_until(lambda: bench.settle() or queue.delivered >= tag, sleep=gevent.sleep)
        client.receive(delivery(body, tag=tag, properties=b"\x80\x00\x03abc", frame_max=frame_max))
    assert sum(sent_from_files) == len(LARGE)
    assert queue.unacked_count == (0 if no_ack else 3)


def test_message_in_a_file_that_is_used_again_is_not_sent_from_it(bench, queue, client, sent_from_files):
    """The system would send what is in the file when the client reads: perhaps somebody else's message."""
    client.consume(queue, no_ack=True)

    publish(bench, queue, LARGE[:7 << 20])

    client.receive(delivery(LARGE[:7 << 20]))
    assert not sent_from_files


def test_message_with_a_file_of_its_own_from_mqtt_is_copied(bench, queue, client, sent_from_files):
    client.consume(queue, no_ack=True)

    put(bench, queue, over_mqtt(LARGE))

    client.receive(from_mqtt(LARGE))
    assert not sent_from_files


def test_message_that_shows_how_often_it_came_back_is_whole(bench, queue, client):
    """A queue that counts gives it another header, and so copies it."""
    queue.limits = QueueLimits(queue, None, bench.timers, None)
    queue.limits.configure(QueueSettings({"x-delivery-limit": 3}))
    client.consume(queue)
    publish(bench, queue, LARGE)
    wait_until(lambda: bench.settle() or queue.delivered == 1, sleep=gevent.sleep)
    client.receive(delivery(LARGE))

    client.channel.reject(1, False, FAILED)

    wait_until(lambda: bench.settle() or queue.delivered == 2, sleep=gevent.sleep)
    client.receive(delivery(
        LARGE, tag=2, redelivered=True, properties=b"\x20\x00" + encode_table({"x-delivery-count": 1})))


@pytest.mark.parametrize("how", ["automatic ack", "purge", "delete"])
def test_message_is_whole_though_its_file_goes_and_others_come_while_it_is_sent(
    bench, queue, sent_from_files, how,
):
    client = Client(bench, 65536)
    client.consume(queue, no_ack=how == "automatic ack")
    publish(bench, queue, LARGE)
    assert 0 < sum(sent_from_files) < len(LARGE) and client.output.blocked

    if how == "purge":
        client.channel.ack(1, False)
        queue.store.purge()
    elif how == "delete":
        queue.store.delete_files()
    other = bench.queue("other")
    for _ in range(3):
        publish(bench, other, LARGE[::-1])

    client.receive(delivery(LARGE))
    assert client.output.wait_drained(30)
    client.close()


def test_client_that_goes_lets_go_of_the_file_it_was_sent_from(bench, queue):
    publish(bench, queue, LARGE)
    shown = Message()
    assert queue.peek(shown)
    reading = queue.body_file(shown)
    file = reading.file
    reading.close()
    client = Client(bench, 65536)
    client.consume(queue)
    assert client.output.blocked and file.is_retained

    client.close()

    assert not file.is_retained and not file.closed


def test_consumer_takes_the_next_when_one_was_sent_from_its_file(bench, queue, sent_from_files):
    client = Client(bench, 65536)
    client.consume(queue, no_ack=True)
    publish(bench, queue, LARGE, b"next", LARGE[::-1])
    assert queue.ready_count == 2

    client.receive(delivery(LARGE))
    wait_until(lambda: bench.settle() or queue.ready_count < 2, sleep=gevent.sleep)
    client.receive(delivery(b"next", tag=2))
    wait_until(lambda: bench.settle() or queue.ready_count == 0, sleep=gevent.sleep)
    client.receive(delivery(LARGE[::-1], tag=3))
    assert sum(sent_from_files) == 2 * len(LARGE)
    client.close()
