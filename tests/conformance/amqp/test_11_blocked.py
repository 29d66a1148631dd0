"""Connection: connection.blocked and unblocked, when the broker is short of something.

The alarm is tripped through gomq_py.testing.
"""
import pika
import pika.exceptions
import pytest

from gomq_py.testing.brokers import ChildBroker
from tests.support.broker_under_test import KIND
from tests.support.held_up import again_when_held_up
from tests.support.waiting import wait_until
from tests.support.wire_encoding import HEARTBEAT_FRAME
from tests.support.wire_script import Wire

pytestmark = pytest.mark.skipif(KIND != "gomq-py", reason="the alarm is tripped inside our broker")


@pytest.fixture(scope="module")
def broker():
    """A broker whose alarm can be tripped."""
    with ChildBroker() as child:
        yield child


@pytest.fixture
def open_channel(broker):
    """Opens channels on connections of their own; the alarm is off again afterwards."""
    wires = []

    def open_(**options):
        parameters = pika.URLParameters(broker.amqp_url)
        wires.append(Wire.open((parameters.host, parameters.port), **options))
        return wires[-1].channel()
    yield open_
    broker.calm()
    for wire in wires:
        wire.close()


def test_blocked_client_is_told_held_and_let_go(broker, open_channel):
    publisher, other = open_channel(), open_channel()
    queue = other.declare()

    broker.trip_alarm("low on disk")
    publisher.publish("", queue, b"held")
    publisher.wire.expect(0, "connection.blocked", reason="low on disk")
    other.expect_count(queue, 0)

    broker.trip_alarm(None)
    publisher.wire.expect(0, "connection.unblocked")
    other.expect_count(queue, 1)


def test_client_that_did_not_ask_is_held_without_being_told(broker, open_channel):
    publisher, other = open_channel(capabilities={}), open_channel(capabilities={})
    queue = other.declare()

    broker.trip_alarm("low on disk")
    publisher.publish("", queue, b"held")
    other.expect_count(queue, 0)
    broker.trip_alarm(None)

    other.expect_count(queue, 1)
    publisher.call("queue.declare", queue=publisher.declare(), passive=True)


def test_consumers_and_declares_go_on_while_publishers_are_held(broker, open_channel):
    channel = open_channel(capabilities={})
    queue = channel.declare()
    channel.publish("", queue, b"earlier")
    channel.expect_count(queue, 1)

    broker.trip_alarm("low on disk")

    channel.consume(queue)
    delivery = channel.expect_content("basic.deliver", b"earlier")
    channel.send("basic.ack", delivery_tag=delivery.method.delivery_tag)
    assert channel.declare()


@again_when_held_up(1)
def test_held_publisher_is_not_taken_for_dead(broker, open_channel):
    """Its heartbeats cannot be read while it is held; the broker must go on sending its
    own and keep the connection.
    """
    publisher = open_channel(heartbeat=1)
    queue = publisher.declare()
    broker.trip_alarm("low on disk")
    publisher.publish("", queue, b"held")
    publisher.wire.expect(0, "connection.blocked")

    beats = 0
    while beats < 8:  # about four intervals, twice what a silent client is given
        beats += publisher.wire.next_frame(heartbeats=True)[0] == 8
        publisher.wire.send(HEARTBEAT_FRAME)
    broker.trip_alarm(None)

    publisher.wire.expect(0, "connection.unblocked")
    publisher.expect_count(queue, 1)


def test_pika_calls_back_when_blocked_and_unblocked(broker):
    called = []
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    connection.add_on_connection_blocked_callback(lambda _, frame: called.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda *_: called.append("unblocked"))

    broker.trip_alarm("low on memory")
    connection.channel().basic_publish("amq.fanout", "", b"held")
    wait_until(lambda: called == ["low on memory"], sleep=lambda _: connection.process_data_events(0.05))
    broker.trip_alarm(None)
    wait_until(
        lambda: called == ["low on memory", "unblocked"], sleep=lambda _: connection.process_data_events(0.05)
    )

    connection.close()


def test_pika_gives_up_when_blocked_for_too_long(broker):
    parameters = pika.URLParameters(broker.amqp_url + "?blocked_connection_timeout=0.2")
    connection = pika.BlockingConnection(parameters)

    broker.trip_alarm("low on memory")
    connection.channel().basic_publish("amq.fanout", "", b"held")

    with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
        while True:
            connection.process_data_events(1)
    broker.calm()
