"""What the members of a share that are left get of a session that has ended."""
from functools import partial

import gevent
import pytest

from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.wire.codec import PacketReader
from gomq_py.mqtt.wire.constants import MQTT_5, PUBLISH, SERVER
from gomq_py.mqtt.wire.packets import (
    ConnectPacket, DisconnectPacket, PubackPacket, PublishPacket, PubrecPacket, SubscribePacket, Subscription,
)
from gomq_py.storage.message import Message
from tests.support.waiting import wait_until as wait_for
from tests.unit.mqtt.server import conftest

wait_until = partial(wait_for, sleep=gevent.sleep)
make_mqtt, mqtt = conftest.make_mqtt, conftest.mqtt
SHARE = "$share/g/t/+"


class Client:
    """A client of MQTT 5 that acknowledges nothing by itself."""

    def __init__(self, mqtt, client_id, expiry_s=0, clean=True, **options):
        self._client = mqtt.stranger()
        self._reader = PacketReader(MQTT_5, SERVER)
        self.send(ConnectPacket(
            client_identifier=client_id, user_name="guest", password=b"guest", clean_start=clean,
            properties={"session_expiry_interval": expiry_s, **options}))
        self.next()

    def send(self, packet):
        self._client.send(packet.encode(MQTT_5))

    def next(self):
        """The next packet."""
        while (packet := self._reader.next_packet()) is None:
            octets = self._client.socket.recv(65536)
            assert octets, "the socket was closed"
            self._reader.feed(octets)
        return packet

    def payloads(self, count):
        """The payloads of so many PUBLISH packets, each acknowledged at QoS 1."""
        found = []
        while len(found) < count:
            packet = self.next()
            if packet.TYPE == PUBLISH:
                found.append(packet.payload)
                if packet.qos == 1:
                    self.send(PubackPacket(packet_identifier=packet.packet_identifier))
        return found

    def subscribe(self, *filters, qos=2):
        self.send(SubscribePacket(
            packet_identifier=1, subscriptions=[Subscription(one, qos) for one in filters]))
        self.next()
        return self

    def publish(self, topic, payload, qos=1, identifier=1):
        self.send(PublishPacket(
            topic_name=topic, payload=payload, qos=qos, packet_identifier=identifier if qos else 0))

    def leave(self):
        self.send(DisconnectPacket())
        self._client.expect_end()


def amqp(mqtt, topic, payload, persistent=True):
    """A message as AMQP clients publish it."""
    vhost, message = mqtt.door.vhost, Message()
    message.assign(b"amq.topic", topic.replace("/", ".").encode(), b"\0\0", payload, 1, persistent=persistent)
    for destination in vhost.route(vhost.exchange("amq.topic"), topic.replace("/", ".")):
        destination.publish(message)


def publish(mqtt, *payloads, topic="t/1", qos=1):
    """Publish as a client that is gone when all has come to the broker."""
    client = Client(mqtt, "publisher")
    for identifier, payload in enumerate(payloads, 1):
        client.publish(topic, payload, qos, identifier)
        if qos:
            client.next()
    client.leave()


def test_unacknowledged_messages_of_qos_1_go_to_the_others_in_their_order(mqtt):
    first = Client(mqtt, "a").subscribe(SHARE, qos=1)
    publish(mqtt, b"1", b"2", b"3")
    assert [first.next().payload for _ in range(3)] == [b"1", b"2", b"3"]
    second = Client(mqtt, "b").subscribe(SHARE, qos=1)

    first.leave()

    assert second.payloads(3) == [b"1", b"2", b"3"]


def test_what_was_acknowledged_goes_to_nobody(mqtt):
    first = Client(mqtt, "a").subscribe(SHARE, qos=1)
    publish(mqtt, b"1", b"2")
    first.payloads(2)
    second = Client(mqtt, "b").subscribe(SHARE, qos=1)

    first.leave()
    publish(mqtt, b"3")

    assert second.payloads(1) == [b"3"]


@pytest.mark.parametrize("how", ["deleted", "clean start"])
def test_session_of_an_absent_client_leaves_what_it_has_kept(mqtt, how):
    Client(mqtt, "a", 1000).subscribe(SHARE, qos=1).leave()
    publish(mqtt, b"1", b"2")
    second = Client(mqtt, "b").subscribe(SHARE, qos=1)

    if how == "deleted":
        mqtt.door.vhost.delete_queue("mqtt.a")
    else:
        again = Client(mqtt, "a", 1000)
        again.subscribe("t/1", qos=1)

    assert second.payloads(2) == [b"1", b"2"]
    if how != "deleted":
        publish(mqtt, b"3")
        assert again.payloads(1) == [b"3"]


def test_delivery_at_qos_2_that_has_begun_goes_to_nobody_else(mqtt):
    """[MQTT-4.8.2-5]"""
    first = Client(mqtt, "a", 1000, receive_maximum=1).subscribe(SHARE)
    publish(mqtt, b"begun", b"waits", qos=2)
    assert first.next().payload == b"begun"
    second = Client(mqtt, "b").subscribe(SHARE)
    first.leave()

    mqtt.door.vhost.delete_queue("mqtt.a")

    packet = second.next()
    assert (packet.payload, packet.qos) == (b"waits", 2)
    second.send(PubrecPacket(packet_identifier=packet.packet_identifier))
    second.next()
    publish(mqtt, b"last", qos=0)
    assert second.payloads(1) == [b"last"]


def test_session_that_somebody_deletes_under_its_client_leaves_its_messages(mqtt):
    first = Client(mqtt, "a", 1000).subscribe(SHARE, qos=1)
    publish(mqtt, b"1")
    assert first.next().payload == b"1"
    second = Client(mqtt, "b").subscribe(SHARE, qos=1)

    mqtt.door.vhost.delete_queue("mqtt.a")

    assert second.payloads(1) == [b"1"]


def test_only_what_came_by_the_share_goes_on_and_once(mqtt):
    """The session has subscriptions of its own, too, one of them to the same topics."""
    Client(mqtt, "a", 1000).subscribe(SHARE, "own", "t/both", qos=1).leave()
    publish(mqtt, b"own", topic="own")
    publish(mqtt, b"1", b"2", topic="t/both")
    publish(mqtt, b"0", qos=0)
    publish(mqtt, b"3")
    second = Client(mqtt, "b").subscribe(SHARE, qos=1)

    mqtt.door.vhost.delete_queue("mqtt.a")
    second.payloads(3)
    publish(mqtt, b"last")

    assert second.payloads(1) == [b"last"]


def test_messages_of_amqp_go_on_where_they_are_persistent(mqtt):
    Client(mqtt, "a", 1000).subscribe(SHARE, qos=1).leave()
    amqp(mqtt, "t/1", b"transient", persistent=False)
    amqp(mqtt, "t/1", b"persistent")
    second = Client(mqtt, "b").subscribe(SHARE, qos=1)

    mqtt.door.vhost.delete_queue("mqtt.a")

    assert second.payloads(1) == [b"persistent"]


def test_nothing_is_left_where_nobody_shares(mqtt):
    Client(mqtt, "a", 1000).subscribe(SHARE, qos=1).leave()
    publish(mqtt, b"1")

    mqtt.door.vhost.delete_queue("mqtt.a")

    wait_until(lambda: not mqtt.broker._factory.legacies._transfers, what="it is not over")
    assert "a" not in mqtt.door.vhost.extras[EXTRA].by_client


def test_deleted_vhost_gives_nothing_to_anybody(mqtt):
    vhost = mqtt.broker.create_vhost("v")
    sessions = vhost.extras[EXTRA]
    mqtt.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    for client_id in ("a", "b"):
        client = mqtt.stranger()
        client.send(ConnectPacket(
            client_identifier=client_id, user_name="v:guest", password=b"guest",
            properties={"session_expiry_interval": 100}).encode(MQTT_5))
        wait_until(lambda name=client_id: name in sessions.by_client, what="it has not connected")
        client.send(SubscribePacket(
            packet_identifier=1, subscriptions=[Subscription(SHARE, 1)]).encode(MQTT_5))
        wait_until(lambda name=client_id: sessions.by_client[name].subscriptions, what="no subscription")

    mqtt.broker.delete_vhost("v", [one for one in mqtt.hub.clients])

    mqtt.broker.wait_until_gone("v")
    assert not mqtt.broker._factory.legacies._transfers


def test_many_messages_go_on_in_slices_and_all_arrive_at_a_stop(make_mqtt):
    mqtt = make_mqtt()
    for client_id in ("a", "b"):
        Client(mqtt, client_id, 1000).subscribe(SHARE, qos=1).leave()
    mqtt.door.vhost.extras[EXTRA].by_client["b"].unsubscribe(SHARE)
    for number in range(1000):
        amqp(mqtt, "t/1", b"%d" % number)
    heir = Client(mqtt, "b", 1000, clean=False)
    heir.subscribe(SHARE, qos=1).leave()
    queue = mqtt.door.vhost.queues["mqtt.b"]

    mqtt.door.vhost.delete_queue("mqtt.a")
    assert queue.ready_count < 1000
    mqtt.broker._factory.legacies.close()

    assert queue.ready_count == 1000
    bodies, message = [], Message()
    while queue.get(message, True):
        bodies.append(message.get_body())
    assert bodies == [b"%d" % number for number in range(1000)]
