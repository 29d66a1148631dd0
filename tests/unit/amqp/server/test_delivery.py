"""An AMQP consumer: the frames it writes, its credit, and what a full socket does to it."""
import struct

import gevent
import pytest

from gomq_py.amqp.server.delivery import AMQPConsumer
from gomq_py.amqp.server.hot_channel import HotChannel
from gomq_py.broker.queues.queue import Queue
from gomq_py.hub.buffers import HubBuffers
from gomq_py.net.output import Output
from gomq_py.storage.errors import StoreError
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
    held = client.channel.unacked.hold(queue, None)
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
