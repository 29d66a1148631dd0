"""The codec and paho-mqtt, which share nothing, understand each other: all that a paho client writes is
decoded, and it reads what is encoded here. Over a socket on this machine, one packet after the other, without
threads.
"""
import select
import socket
from contextlib import contextmanager

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5, MQTTv31, MQTTv311
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gomq_py.mqtt.wire.codec import PacketReader
from gomq_py.mqtt.wire.constants import CLIENT, MQTT_5, NO_VERSION
from gomq_py.mqtt.wire.packets import (
    ConnackPacket, ConnectPacket, DisconnectPacket, PingreqPacket, PubackPacket, PubcompPacket, PublishPacket,
    PubrecPacket, PubrelPacket, SubackPacket, SubscribePacket, Subscription, UnsubackPacket,
    UnsubscribePacket, Will,
)
from tests.support.waiting import in_time

VERSIONS = [MQTTv31, MQTTv311, MQTTv5]


class Peer:
    """A paho client and the server's end of its connection."""

    def __init__(self, client, listener):
        self.client = client
        self.listener = listener
        self.socket = None
        self.reader = PacketReader(NO_VERSION, CLIENT)

    def connect(self, **options):
        """Connect and return the CONNECT."""
        self.client.connect(*self.listener.getsockname(), keepalive=60, **options)
        self.socket, _ = self.listener.accept()
        self.socket.settimeout(in_time(20))
        return self.read()

    def read(self):
        """The next packet that the client has written."""
        while (packet := self.reader.next_packet()) is None:
            octets = self.socket.recv(65536)
            assert octets, "the client has closed"
            self.reader.feed(octets)
        return packet

    def write(self, packet):
        """Have the client read a packet, which is there as a whole once any of it is,
        and do what it does about that.
        """
        self.socket.sendall(packet.encode(self.reader.version))
        readable, _, _ = select.select([self.client.socket()], [], [], in_time(20))
        assert readable
        self.client.loop_read()


@contextmanager
def peer_of(version, client_id="device"):
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=version)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(in_time(20))
        peer = Peer(client, listener)
        try:
            yield peer
        finally:
            client.disconnect()
            if peer.socket is not None:
                peer.socket.close()
            if client.socket() is not None:
                client.socket().close()


def properties_of(kind, **values):
    found = Properties(kind)
    for name, value in values.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_connects_of_paho_are_understood(version):
    with peer_of(version) as peer:
        peer.client.username_pw_set("ürsel", "secret")
        peer.client.will_set("last/words", b"\x00bye", qos=1, retain=True)

        connect = peer.connect()

    assert connect == ConnectPacket(
        version=version, clean_start=True, keep_alive_s=60, client_identifier="device", user_name="ürsel",
        password=b"secret", will=Will("last/words", b"\x00bye", 1, True))


def test_a_connect_of_paho_with_properties_is_understood():
    with peer_of(MQTTv5, "") as peer:
        peer.client.will_set(
            "w", b"x", properties=properties_of(PacketTypes.WILLMESSAGE, WillDelayInterval=5, ContentType="t")
        )

        connect = peer.connect(clean_start=False, properties=properties_of(
            PacketTypes.CONNECT, SessionExpiryInterval=100, ReceiveMaximum=20, MaximumPacketSize=2000,
            TopicAliasMaximum=3, RequestResponseInformation=1, RequestProblemInformation=0,
            UserProperty=[("a", "1"), ("a", "2")]))

    assert connect.properties == {
        "session_expiry_interval": 100, "receive_maximum": 20, "maximum_packet_size": 2000,
        "topic_alias_maximum": 3,
        "request_response_information": 1, "request_problem_information": 0,
        "user_property": [("a", "1"), ("a", "2")]}
    assert connect.will.properties == {"will_delay_interval": 5, "content_type": "t"}
    assert (connect.client_identifier, connect.clean_start) == ("", False)


@pytest.mark.parametrize("version", VERSIONS)
def test_publishes_of_paho_are_understood_and_it_understands_the_answers(version):
    published = []
    with peer_of(version) as peer:
        peer.client.on_publish = lambda client, userdata, mid, reason_code, properties: published.append(mid)
        peer.connect()
        peer.write(ConnackPacket())
        sent = []
        for qos in (0, 1, 2):
            peer.client.publish("a/ä", b"\xff" * 200, qos=qos, retain=qos == 1)
            sent.append(peer.read())
        peer.write(PubackPacket(packet_identifier=sent[1].packet_identifier))
        peer.write(PubrecPacket(packet_identifier=sent[2].packet_identifier))
        released = peer.read()
        peer.write(PubcompPacket(packet_identifier=released.packet_identifier))

    assert [(each.topic_name, each.payload, each.qos, each.retain, each.dup) for each in sent] == [
        ("a/ä", b"\xff" * 200, qos, qos == 1, False) for qos in (0, 1, 2)]
    assert isinstance(released, PubrelPacket)
    assert published[-2:] == [sent[1].packet_identifier, sent[2].packet_identifier]


def test_a_publish_of_paho_with_properties_is_understood():
    with peer_of(MQTTv5) as peer:
        peer.connect()
        peer.write(ConnackPacket(properties={"topic_alias_maximum": 10}))
        peer.client.publish("a", b"x", properties=properties_of(
            PacketTypes.PUBLISH, PayloadFormatIndicator=1, MessageExpiryInterval=60, TopicAlias=3,
            ResponseTopic="r", CorrelationData=b"\x00\x01", ContentType="text/plain",
            UserProperty=[("k", "v")]))

        assert peer.read().properties == {
            "payload_format_indicator": 1, "message_expiry_interval": 60, "topic_alias": 3,
            "response_topic": "r",
            "correlation_data": b"\x00\x01", "content_type": "text/plain", "user_property": [("k", "v")]}


@pytest.mark.parametrize("version", VERSIONS)
def test_subscribes_of_paho_are_understood_and_it_understands_the_answers(version):
    granted, dropped = [], []
    with peer_of(version) as peer:
        peer.client.on_subscribe = lambda client, userdata, mid, codes, properties: granted.extend(codes)
        peer.client.on_unsubscribe = lambda client, userdata, mid, codes, properties: dropped.append(mid)
        peer.connect()
        peer.write(ConnackPacket())
        peer.client.subscribe(
            [("a/+", 1), ("#", 2)] if version != MQTTv5
            else [
                ("a/+", SubscribeOptions(1)),
                ("#", SubscribeOptions(2, True, True, SubscribeOptions.RETAIN_DO_NOT_SEND))]
        )
        subscribe = peer.read()
        peer.write(SubackPacket(packet_identifier=subscribe.packet_identifier, reason_codes=(1, 0x80)))
        peer.client.unsubscribe(["a/+", "#"])
        unsubscribe = peer.read()
        peer.write(UnsubackPacket(packet_identifier=unsubscribe.packet_identifier, reason_codes=(0, 0)))

    second = Subscription("#", 2, True, True, 2) if version == MQTTv5 else Subscription("#", 2)
    assert isinstance(subscribe, SubscribePacket) and isinstance(unsubscribe, UnsubscribePacket)
    assert subscribe.subscriptions == (Subscription("a/+", 1), second)
    assert unsubscribe.topic_filters == ("a/+", "#")
    assert [code.value for code in granted] == [1, 0x80]
    assert dropped == [unsubscribe.packet_identifier]


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_understands_what_a_server_delivers(version):
    received = []
    with peer_of(version) as peer:
        peer.client.on_message = lambda client, userdata, message: received.append(message)
        peer.connect()
        peer.write(ConnackPacket())
        properties = {"subscription_identifier": [3, 300], "content_type": "t", "user_property": [("k", "v")]}
        for qos in (0, 1, 2):
            peer.write(PublishPacket(
                topic_name="a/ä", payload=b"x" * 300, qos=qos, retain=True, packet_identifier=qos and 9 + qos,
                properties=properties if version == MQTT_5 else {}))
        answers = [peer.read(), peer.read()]
        peer.write(PubrelPacket(packet_identifier=11))
        answers.append(peer.read())

    assert answers == [
        PubackPacket(packet_identifier=10), PubrecPacket(packet_identifier=11),
        PubcompPacket(packet_identifier=11),
    ]
    assert [(each.topic, each.payload, each.qos, each.retain) for each in received] == [
        ("a/ä", b"x" * 300, qos, True) for qos in (0, 1, 2)]
    if version == MQTT_5:
        assert received[0].properties.SubscriptionIdentifier == [3, 300]
        assert received[0].properties.UserProperty == [("k", "v")]


def test_paho_understands_why_it_is_refused_or_disconnected():
    reasons = []
    with peer_of(MQTTv5) as peer:
        peer.client.on_connect = lambda client, userdata, flags, reason_code, properties: reasons.append(
            reason_code
        )
        peer.client.on_disconnect = lambda client, userdata, flags, reason_code, properties: reasons.append(
            reason_code
        )
        peer.connect()
        peer.write(ConnackPacket(session_present=True, properties={
            "assigned_client_identifier": "auto", "server_keep_alive": 9, "maximum_qos": 1,
            "reason_string": "hi"}))
        peer.write(DisconnectPacket(reason_code=0x8E, properties={"reason_string": "elsewhere"}))

    assert [reason.value for reason in reasons][:2] == [0, 0x8E]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_of_a_connection_of_paho_is_understood(version):
    with peer_of(version) as peer:
        peer.connect()
        peer.write(ConnackPacket())
        peer.client._send_pingreq()  # its public way waits for the keep alive to pass
        ping = peer.read()
        peer.client.disconnect()

        assert (ping, peer.read()) == (PingreqPacket(), DisconnectPacket())
