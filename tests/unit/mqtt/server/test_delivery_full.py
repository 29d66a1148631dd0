"""Subscribers at QoS 0 that read more slowly than others publish: publishers wait for those that read, and
not for long for those that do not. Literal octets, over both lanes.
"""
from functools import partial

import gevent
import pytest

from gomq_py.hub.backpressure import Turn
from tests.support.mqtt_publishing import publish
from tests.support.sockets import receive_exactly
from tests.support.waiting import wait_until as wait_for
from tests.unit.mqtt.server.conftest import CONNACK_311, CONNECT_311
from tests.unit.mqtt.server.test_fast_lane import lane  # noqa: F401  (a fixture: each test uses it)

wait_until = partial(wait_for, sleep=gevent.sleep)
PING, PONG = b"\xc0\x00", b"\xd0\x00"
COUNT = 1000
MESSAGES = [publish(b"t", b"%04d" % number + bytes(1020)) for number in range(COUNT)]
LENGTH = len(MESSAGES[0])
# Bytes that a client reads one by one: far fewer than make its socket writable for the broker.
DRIPS = 10_000
# The longest that a message may wait.
FULL_MS = 1000


class Timers:
    """A hub's timers that note the ``waits`` (ms) of messages; these last for ever if ``is_endless``."""

    def __init__(self, timers, is_endless):
        self.timers, self.is_endless = timers, is_endless
        self.waits = []

    def start(self, after_ms, callback):
        is_wait = getattr(callback, "__func__", None) is Turn._come
        if is_wait:
            assert 0 < after_ms <= FULL_MS
            self.waits.append(after_ms)
        return self.timers.start(3_600_000 if is_wait and self.is_endless else after_ms, callback)

    def __getattr__(self, name):
        return getattr(self.timers, name)


@pytest.fixture
def make(make_mqtt):
    """A function to a door whose subscribers may leave 64 KiB unread."""
    def make(is_endless=False):
        mqtt = make_mqtt(max_unread_output=131072)
        mqtt.hub.timers = Timers(mqtt.hub.timers, is_endless)
        return mqtt

    return make


def client(mqtt, name, *filters):
    """A client of this one-letter id that has subscribed."""
    one = mqtt.client(CONNECT_311.replace(b"\x00\x01c", b"\x00\x01" + name), CONNACK_311)
    for topic_filter in filters:
        length = len(topic_filter)
        one.send(b"\x82" + bytes((5 + length, 0, 1, 0, length)) + topic_filter + b"\x00")
        one.expect(b"\x90\x03\x00\x01\x00")
    return one


def connection_of(mqtt, name):
    return next(one for one in mqtt.hub.clients if one.client_id == name)


def sink_of(mqtt, name):
    return connection_of(mqtt, name).outbound.sink


def publishes(one, messages=MESSAGES):
    return gevent.spawn(one.send, b"".join(messages) + PING)


def test_publisher_is_not_read_until_its_subscriber_has_read(make):
    mqtt = make(is_endless=True)
    subscriber, publisher = client(mqtt, b"s", b"t"), client(mqtt, b"p")

    sending = publishes(publisher)
    wait_until(lambda: Turn.waits_for in connection_of(mqtt, "p").stream.waits_for)
    assert sink_of(mqtt, "s").output.pending_octets() <= 65536

    for message in MESSAGES:
        subscriber.expect(message)
    publisher.expect(PONG)
    sending.get()
    assert sink_of(mqtt, "s").dropped == 0


def test_large_messages_wait_too(make):
    mqtt = make(is_endless=True)
    subscriber, publisher = client(mqtt, b"s", b"t"), client(mqtt, b"p")
    large = b"\x30\xa3\x8d\x06\x00\x01t" + bytes(100_000)

    sending = publishes(publisher, [large] * 10)
    wait_until(lambda: Turn.waits_for in connection_of(mqtt, "p").stream.waits_for)

    for _ in range(10):
        subscriber.expect(large)
    publisher.expect(PONG)
    sending.get()
    assert sink_of(mqtt, "s").dropped == 0


@pytest.mark.parametrize(("stuck", "drips"), [(b"1", False), (b"12", True)])
def test_publisher_waits_once_for_subscribers_that_do_not_read(make, stuck, drips):
    """And the others get all."""
    mqtt = make()
    for name in stuck:
        slow = client(mqtt, bytes((name,)), b"t")
        if drips:
            gevent.spawn(drip, slow.socket)
    quick, publisher = client(mqtt, b"q", b"t"), client(mqtt, b"p")

    sending = publishes(publisher)

    for message in MESSAGES:
        quick.expect(message)
    publisher.expect(PONG)
    sending.get()
    sinks = [sink_of(mqtt, chr(name)) for name in stuck]
    assert all(sink.dropped + sink.sent == COUNT for sink in sinks)
    assert drips or sinks[0].is_late()  # a client that drips may just have read all
    assert min(sink.dropped for sink in sinks) > 100 and len(mqtt.hub.timers.waits) < 10 + 10 * drips
    assert sink_of(mqtt, "q").dropped == 0


def test_clients_that_hang_do_not_delay_publishers_one_after_the_other(make):
    mqtt = make()
    client(mqtt, b"1", b"t", b"u")
    client(mqtt, b"2", b"t")
    publisher = client(mqtt, b"p")
    publishes(publisher, [publish(b"u", bytes(1024))] * 30).get()  # the first is full before the second
    publisher.expect(PONG)

    publishes(publisher).get()
    publisher.expect(PONG)

    assert FULL_MS / 2 < sum(mqtt.hub.timers.waits) < 1.5 * FULL_MS


def drip(socket):
    for _ in range(DRIPS):
        if not socket.recv(1):
            break
        gevent.sleep()


def test_subscriber_that_was_late_is_waited_for_after_it_has_read_in_time(make):
    mqtt = make()
    subscriber, publisher = client(mqtt, b"s", b"t"), client(mqtt, b"p")
    sink = sink_of(mqtt, "s")

    for _ in range(2):  # the second time at once: others are not held each time
        before, mqtt.hub.timers.waits = sink.sent, []
        publishes(publisher).get()
        publisher.expect(PONG)
        assert sink.is_late()
        receive_exactly(subscriber.socket, (sink.sent - before) * LENGTH)
        wait_until(lambda: not sink.is_late())
    assert not mqtt.hub.timers.waits
    lost = sink.dropped
    assert lost

    sending = publishes(publisher)

    for message in MESSAGES:
        subscriber.expect(message)
    publisher.expect(PONG)
    sending.get()
    assert sink.dropped == lost


def test_client_that_floods_itself_and_reads_nothing_is_read_to_the_end(make):
    mqtt = make()
    one = client(mqtt, b"c", b"t")

    publishes(one, MESSAGES[:800]).get()

    sink = sink_of(mqtt, "c")
    wait_until(lambda: sink.sent + sink.dropped == 800)
    assert PONG in receive_exactly(one.socket, sink.sent * LENGTH + len(PONG)) and sink.dropped > 100


def test_clients_that_flood_each_other_and_read_nothing_are_read_to_the_end(make):
    mqtt = make()
    one, other = client(mqtt, b"1", b"t"), client(mqtt, b"2", b"u")
    others = [message.replace(b"\x00\x01t", b"\x00\x01u", 1) for message in MESSAGES]

    sending = [publishes(one, others), publishes(other)]
    gevent.joinall(sending, raise_error=True)

    wait_until(lambda: all(
        sink_of(mqtt, name).sent + sink_of(mqtt, name).dropped == COUNT for name in ("1", "2")))


def test_publisher_that_leaves_while_its_message_waits_leaves_nothing(make):
    mqtt = make()
    client(mqtt, b"s", b"t")
    publisher = client(mqtt, b"p")
    sending = publishes(publisher)
    wait_until(lambda: Turn.waits_for in connection_of(mqtt, "p").stream.waits_for)
    blocked = connection_of(mqtt, "p").vhost.blocked_publishes
    assert len(blocked) == 1

    sending.kill()
    publisher.socket.close()

    wait_until(lambda: not blocked and [one.client_id for one in mqtt.hub.clients] == ["s"])


def test_message_that_waits_is_not_sent_to_a_client_that_has_unsubscribed(make):
    mqtt = make(is_endless=True)
    subscriber, publisher = client(mqtt, b"s", b"t"), client(mqtt, b"p")
    sending = publishes(publisher)
    wait_until(lambda: Turn.waits_for in connection_of(mqtt, "p").stream.waits_for)

    subscriber.send(b"\xa2\x05\x00\x02\x00\x01t")
    wait_until(lambda: not connection_of(mqtt, "s").session.subscriptions)

    for message in MESSAGES[:sink_of(mqtt, "s").sent]:
        subscriber.expect(message)
    subscriber.expect(b"\xb0\x02\x00\x02")
    publisher.expect(PONG)
    sending.get()
    subscriber.send(PING)
    subscriber.expect(PONG)


def test_member_that_does_not_read_leaves_its_turns_to_members_that_do(make):
    """And no message waits for it: the wait would have no end."""
    mqtt = make(is_endless=True)
    client(mqtt, b"s", b"$share/g/t")
    quick, publisher = client(mqtt, b"q", b"$share/g/t"), client(mqtt, b"p")

    reading = gevent.spawn(read, quick.socket)
    publishes(publisher).get()
    publisher.expect(PONG)

    sinks = sink_of(mqtt, "s"), sink_of(mqtt, "q")
    assert sum(sink.sent for sink in sinks) == COUNT and not any(sink.dropped for sink in sinks)
    assert sinks[0].output.blocked
    reading.kill()


def read(socket):
    while socket.recv(65536):
        pass
