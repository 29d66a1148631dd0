"""A queue is deleted while a message waits for the files of its next segment: what is confirmed is in a
queue, or was returned. At 6805b4a2 it was confirmed and nowhere, which all tests show but those over HTTP,
of two queues and of a virtual host.
"""
import struct
import threading
from functools import partial

import pytest

import gomq_py
from gomq_py import node
from gomq_py.client.errors import ChannelClosed
from gomq_py.client.mqtt import MQTTClient
from gomq_py.content.properties import Properties
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.wire.constants import MQTT_5
from gomq_py.mqtt.wire.packets import PublishPacket
from tests.embedding.test_slow_disk import HeldFiles, connect, published_over_http
from tests.support.waiting import in_time, wait_until

LANES = pytest.mark.parametrize("properties", [
    Properties(delivery_mode=2), Properties(delivery_mode=2, expiration="600000"),
], ids=["fast lane", "slow lane"])


class Deleted:
    """A broker whose queue "q" has no files yet, and gets none before ``let_go()``. It is bound to "with
    alternate", whose alternate leads to the queue "alternate", and to the two exchanges of clients' topics.
    """

    def __init__(self, monkeypatch):
        self.files = []
        monkeypatch.setattr(
            node, "Files", lambda listeners: self.files.append(HeldFiles(listeners)) or self.files[-1])
        self.broker = gomq_py.Broker(http_port=0, mqtt_port=0).start()
        self.broker.call(lambda _: self.files[0].begin())
        self.publisher, self.other = connect(self.broker), connect(self.broker)
        self.channel, self.topology = self.publisher.channel(), self.other.channel()
        self.channel.confirm_select()
        self.topology.exchange_declare("with alternate", "direct", arguments={"alternate-exchange": "lost"})
        self.topology.exchange_declare("lost", "fanout")
        self.topology.queue_declare("alternate")
        self.topology.queue_bind("alternate", "lost")
        self.declare("q")
        self.files[0].hold("make")

    def declare(self, name, **options):
        self.topology.queue_declare(name, durable=True, **options)
        for exchange in ("with alternate", "amq.topic"):
            self.topology.queue_bind(name, exchange, "key")

    def publish(self, exchange, properties, routing_key="key"):
        self.channel.publish(exchange, routing_key, b"x", properties, mandatory=True)
        self.wait_until_held()

    def wait_until_held(self):
        assert self.files[0].is_held.wait(in_time(60))

    def wait_until_over(self):
        wait_until(lambda: self.broker.call(lambda launched: launched.hub.bodies.held == 0))

    def ready(self, name):
        """The bodies in a queue."""
        deliveries = iter(partial(self.topology.get, name, no_ack=True), None)
        return [bytes(delivery.body) for delivery in deliveries]

    def outcome(self):
        """Whether it was confirmed, what came back, and what is in the alternate's queue."""
        self.files[0].let_go()
        is_confirmed = self.channel.wait_for_confirms(in_time(60))
        return is_confirmed, [bytes(each.body) for each in self.channel.returned], self.ready("alternate")

    def close(self):
        self.files[0].let_go()
        for each in (self.publisher, self.other, self.broker):
            each.close()


@pytest.fixture
def held(monkeypatch):
    deleted = Deleted(monkeypatch)
    yield deleted
    deleted.close()


@LANES
def test_mandatory_message_comes_back(held, properties):
    held.publish("", properties, "q")

    held.topology.queue_delete("q")

    assert held.outcome() == (True, [b"x"], [])


@LANES
def test_message_goes_to_the_alternate(held, properties):
    held.publish("with alternate", properties)

    held.topology.queue_delete("q")

    assert held.outcome() == (True, [], [b"x"])


@LANES
def test_message_goes_to_the_next_queue_that_its_exchange_leads_to(held, properties):
    held.publish("with alternate", properties)

    held.topology.queue_delete("q")
    held.declare("q")

    assert held.outcome() == (True, [], [])
    assert held.ready("q") == [b"x"]


@LANES
def test_queue_that_a_message_waits_for_is_not_empty(held, properties):
    """``if-empty`` is there so that nothing is lost: RabbitMQ would have the message in the queue."""
    held.publish("", properties, "q")

    with pytest.raises(ChannelClosed, match="PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"):
        held.topology.queue_delete("q", if_empty=True)
    held.topology = held.other.channel()

    assert held.outcome() == (True, [], [])
    assert held.ready("q") == [b"x"]
    held.topology.queue_delete("q", if_empty=True)


@LANES
def test_message_that_another_queue_has_does_not_come_back(held, properties):
    held.declare("stored", arguments={"x-queue-type": "stream"})
    held.publish("with alternate", properties)

    held.topology.queue_delete("q")

    assert held.outcome() == (True, [], [])
    assert held.topology.queue_declare("stored", passive=True).message_count == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_publish_goes_to_the_next_queue_that_its_topic_leads_to(held, qos):
    with MQTTClient(held.broker.mqtt_url, version=MQTT_5, timeout_s=in_time(60)) as device:
        identifier = device.begin_publish("key", b"x", qos)
        held.wait_until_held()

        held.topology.queue_delete("q")
        held.declare("q")
        held.files[0].let_go()

        assert device.wait_acknowledged(identifier) == 0
    assert held.ready("q") == [b"x"]


def test_http_publish_is_not_routed(held):
    answers = []
    asking = threading.Thread(target=lambda: answers.append(published_over_http(held.broker, "q")))
    asking.start()
    held.wait_until_held()

    held.topology.queue_delete("q")
    held.files[0].let_go()

    asking.join(in_time(60))
    assert answers == [{"routed": False}]


def test_transaction_goes_to_the_alternate_if_its_queue_is_deleted_before_the_commit(held):
    channel = held.publisher.channel()
    channel.tx_select()
    channel.publish("with alternate", "key", b"x", Properties(delivery_mode=2))
    channel.queue_declare("q", passive=True)  # it was read

    held.topology.queue_delete("q")
    held.files[0].let_go()
    channel.tx_commit()

    assert held.ready("alternate") == [b"x"]


@LANES
def test_message_of_a_client_that_is_gone_goes_to_the_alternate(held, properties):
    held.publish("with alternate", properties)
    held.broker.call(lambda launched: client_of(launched, held.publisher).abort("somebody wants it gone"))
    wait_until(lambda: held.broker.call(lambda launched: client_of(launched, held.publisher) is None))

    held.topology.queue_delete("q")
    held.files[0].let_go()

    held.wait_until_over()
    assert held.ready("alternate") == [b"x"]


def client_of(launched, connection):
    """The broker's side of a connection."""
    port = connection.socket.getsockname()[1]
    return next((each for each in launched.hub.clients if each.name.startswith(f"127.0.0.1:{port} ")), None)


@LANES
def test_message_of_a_vhost_that_is_deleted_meanwhile_is_gone_with_it(held, properties, caplog):
    held.publish("with alternate", properties)

    held.broker.call(lambda launched: launched.broker.delete_vhost("/"))
    held.files[0].let_go()

    held.wait_until_over()
    held.broker.close()
    assert [record for record in caplog.records if record.exc_info] == []


def test_mqtt_publish_at_qos_2_does_not_come_again_to_a_queue_that_has_it_since_an_earlier_run(held):
    """At 8119bd64 it did: its other queue was gone, and it went to all that its topic leads to."""
    held.declare("has it")
    kept = {"session_expiry_interval": 60}
    with MQTTClient(
        held.broker.mqtt_url, version=MQTT_5, client_identifier="device", clean_start=False, properties=kept,
        timeout_s=in_time(60),
    ) as device:
        held.broker.call(has_had_the_first)
        packet = PublishPacket(
            topic_name="key", payload=b"x", qos=2, dup=True,
            packet_identifier=device.session.next_identifier())
        device.session.outgoing[1] = packet
        device.send_packet(packet)
        held.wait_until_held()

        held.topology.queue_delete("q")
        held.files[0].let_go()

        assert device.wait_acknowledged(1) == 0
    assert held.ready("has it") == []


def has_had_the_first(launched):
    """As after a kill between two queues, of which "has it" got the message with packet identifier 1."""
    vhost = launched.broker.vhosts["/"]
    end = struct.pack("<QQ", vhost.queues["has it"].store.key, 0)
    vhost.extras[EXTRA].by_client["device"].received_ids().restore_partly(1, 0, end)
