"""Order and fairness under load: FIFO through a flood, requeues in their places, turns between consumers, a
quiet queue beside a loud one.
"""
import struct
import threading
from collections import Counter

import pytest

from tests.support.waiting import in_time, wait_until
from tests.support.wire_encoding import BODY, METHOD, decode_method, publish_frames
from tests.support.wire_script import Wire

PUBLISHERS = 4
# of each publisher: enough to outrun sockets, buffers and a segment, few enough for two seconds
MESSAGES = 20000


def flood(address, queue, publisher):
    """Publish numbered messages as fast as the socket takes them; the body is the publisher and its count."""
    with_confirm = Wire.open(address)
    channel = with_confirm.channel()
    channel.call("confirm.select")
    for start in range(0, MESSAGES, 1000):
        with_confirm.send(b"".join(
            publish_frames(1, "", queue, struct.pack(">HI", publisher, n)) for n in range(start, start + 1000)
        ))
    while True:
        ack = channel.expect("basic.ack")
        if ack.delivery_tag == MESSAGES:
            break
    with_confirm.close()


def read_bodies(wire, count):
    """The bodies of the next deliveries on channel 1, as (publisher, number, delivery tag)."""
    found, tag = [], 0
    while len(found) < count:
        type_, _, payload = wire.next_frame()
        if type_ == METHOD:
            tag = int.from_bytes(payload[5 + payload[4]:][:8], "big")
        elif type_ == BODY:
            found.append((*struct.unpack(">HI", payload), tag))
    return found


def in_background(*functions):
    """Start functions in threads; returns a function that waits for all and
    raises what one of them raised.
    """
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:  # told to the test below
            errors.append(error)
    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()

    def join():
        for thread in threads:
            thread.join(in_time(60))
            assert not thread.is_alive()
        for error in errors:
            raise error
    return join


def test_flood_of_four_publishers_arrives_once_and_in_their_order(broker_address, open_wire):
    """One consumer with a prefetch window, acking in hundreds:
    every publisher's messages come in its order, each once.
    """
    wire = open_wire()
    channel = wire.channel()
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1000)
    channel.send("basic.consume", queue=queue, no_wait=True)

    join = in_background(*(lambda n=n: flood(broker_address, queue, n) for n in range(PUBLISHERS)))
    last = [-1] * PUBLISHERS
    for _ in range(PUBLISHERS * MESSAGES // 500):
        for publisher, number, tag in read_bodies(wire, 500):
            assert number == last[publisher] + 1
            last[publisher] = number
            if tag % 100 == 0:
                channel.send("basic.ack", delivery_tag=tag, multiple=True)
    join()

    assert last == [MESSAGES - 1] * PUBLISHERS


def test_flood_shared_by_two_consumers_is_split_without_loss_or_double(broker_address, open_wire, name):
    owner = open_wire().channel()
    owner.declare(name, exclusive=False, auto_delete=True)
    consumers = [open_wire() for _ in range(2)]
    for wire in consumers:
        wire.channel().send("basic.consume", queue=name, no_ack=True, no_wait=True)
    wait_until(lambda: owner.call("queue.declare", queue=name, passive=True).consumer_count == 2)
    seen = [[], []]

    def consume(index):
        while sum(map(len, seen)) < MESSAGES:
            try:
                seen[index] += read_bodies_until_quiet(consumers[index])
            except TimeoutError:
                continue

    def read_bodies_until_quiet(wire):
        """What is there, at least one message or a timeout of a tenth of a second."""
        found = []
        type_, _, payload = wire.next_frame(timeout_s=0.1)
        while True:
            if type_ == BODY:
                found.append(struct.unpack(">HI", payload)[1])
                if len(wire.received) < 8:
                    return found
            type_, _, payload = wire.next_frame()
    join = in_background(lambda: flood(broker_address, name, 0), lambda: consume(0), lambda: consume(1))
    join()

    assert all(numbers == sorted(numbers) for numbers in seen)
    assert Counter(seen[0] + seen[1]) == Counter(range(MESSAGES))
    assert min(map(len, seen)) > MESSAGES // 10


@pytest.mark.parametrize("no_ack", [True, False], ids=["no-ack", "ack"])
def test_idle_consumers_of_three_connections_take_turns(open_wire, name, no_ack):
    """A slow publisher: each message is waited for before the next is sent.

    Strictly one after the other, whoever was first.
    """
    publisher = open_wire().channel()
    publisher.declare(name, exclusive=False, auto_delete=True)
    channels = [open_wire().channel() for _ in range(3)]
    for index, channel in enumerate(channels):
        channel.consume(name, no_ack=no_ack, consumer_tag=str(index))

    turns = []
    for n in range(60):
        publisher.publish("", name, str(n))
        turn, tag = next_receiver(channels, str(n).encode())
        turns.append(turn)
        if not no_ack:
            channels[turn].send("basic.ack", delivery_tag=tag)

    assert turns == turns[:3] * 20 and sorted(turns[:3]) == [0, 1, 2]


def next_receiver(channels, body):
    """Which channel the next delivery came to, and its tag."""
    found = []

    def received():
        for index, channel in enumerate(channels):
            try:
                type_, payload = channel.wire.next_of(1, timeout_s=0.001)
            except TimeoutError:
                continue
            assert type_ == METHOD
            assert [channel.wire.next_of(1)[1] for _ in range(2)][1] == body
            found.append((index, decode_method(payload).delivery_tag))
        return found
    return wait_until(received)[0]


def test_quiet_queue_is_served_beside_a_flood(broker_address, open_wire):
    """Every message of a slow conversation is answered while another connection
    publishes and consumes all it can.
    """
    loud = open_wire()
    channel = loud.channel()
    queue = channel.declare()
    channel.send("basic.consume", queue=queue, no_ack=True, no_wait=True)
    quiet = open_wire().channel()
    mine = quiet.declare()
    quiet.consume(mine, no_ack=True)

    join = in_background(lambda: flood(broker_address, queue, 0), lambda: read_bodies(loud, MESSAGES))
    for n in range(100):
        quiet.publish("", mine, str(n))
        quiet.expect_content("basic.deliver", str(n))
    join()


def test_requeues_in_the_middle_of_a_stream_keep_their_places(open_wire):
    """Every third delivery goes back once: what is left in the end is in order, and what came back came
    before what was behind it.
    """
    wire = open_wire()
    channel = wire.channel()
    queue = channel.declare()
    wire.send(b"".join(publish_frames(1, "", queue, struct.pack(">HI", 0, n)) for n in range(3000)))
    channel.call("basic.qos", prefetch_count=30)
    channel.send("basic.consume", queue=queue, no_wait=True)

    returned, done = set(), []
    while len(done) < 3000:
        for _, number, tag in read_bodies(wire, 1):
            if number % 3 == 0 and number not in returned:
                returned.add(number)
                channel.send("basic.reject", delivery_tag=tag, requeue=True)
            else:
                done.append(number)
                channel.send("basic.ack", delivery_tag=tag)

    assert sorted(done) == list(range(3000))
    late = [number for number in done if number % 3 == 0]
    assert late == sorted(late)
    assert all(abs(place - number) <= 60 for place, number in enumerate(done))
