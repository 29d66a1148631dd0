"""Fuzz targets of MQTT's wire: streams of packets to the codec, the walk over a read buffer beside it, and
the crossing to basic properties and back.
"""
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.mqtt.wire import crossing, topics
from gomq_py.mqtt.wire.codec import PacketReader, decode_packet, last_packet
from gomq_py.mqtt.wire.constants import (
    CLIENT, MQTT_3_1, MQTT_3_1_1, MQTT_5, NO_VERSION, PUBLISH, SERVER, PacketLimits,
)
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.frames import encode_publish
from gomq_py.mqtt.wire.packets import (
    AuthPacket, ConnackPacket, ConnectPacket, DisconnectPacket, PingreqPacket, PubackPacket, PublishPacket,
    PubrelPacket, SubackPacket, SubscribePacket, Subscription, UnsubackPacket, UnsubscribePacket, Will,
)
from gomq_py.mqtt.wire.properties import encode_values
from gomq_py.storage.message import Message
from tests.fuzz.target import Draw, Target, pieces
from tests.support.crossing import values_of
from tests.support.mqtt_lanes import assert_equal_answers

VERSIONS = (NO_VERSION, MQTT_3_1, MQTT_3_1_1, MQTT_5)
SENDERS = (CLIENT, SERVER)
LIMITS = (PacketLimits(), PacketLimits(packet_octets=40, properties=3, subscriptions=2))
PROPERTIES = {
    "payload_format_indicator": 1, "message_expiry_interval": 60, "content_type": "t",
    "response_topic": "r/s",
    "correlation_data": b"\xff", "topic_alias": 5, "user_property": [("k", "v"), ("", "ä")],
}


# streams of packets

def run_packets(data):
    """However a stream is cut, the same packets come out; each encodes to what decodes to it again, and a
    filter in it matches by octets what it matches by characters. A refusal has an answer that its version can
    read.
    """
    draw = Draw(data)
    version, sender, limits = draw.choice(VERSIONS), draw.choice(SENDERS), draw.choice(LIMITS)
    sizes = tuple(draw.octets(3)) or (1,)
    stream = draw.rest()

    whole = _read([stream], version, sender, limits)

    assert repr(whole) == repr(_read(pieces(stream, sizes), version, sender, limits))
    for spoken, packet in whole[0]:
        assert decode_packet(packet.encode(spoken), spoken if version else NO_VERSION, sender) == packet
        for each in packet.subscriptions if isinstance(packet, SubscribePacket) else ():
            _match(each.topic_filter)
        version = version or packet.version


def _read(parts, version, sender, limits):
    """([(version, packet)], how it ended)."""
    reader, found = PacketReader(version, sender, limits), []
    for part in parts:
        reader.feed(part)
        try:
            while (packet := reader.next_packet()) is not None:
                found.append((reader.version, packet))
        except MQTTError as error:
            _check_answers(error, reader.version)
            return found, str(error)
    return found, bytes(reader.buffer)


def _check_answers(error, version):
    for connected in (False, True):
        answer = last_packet(error, version, connected)
        if answer:
            decode_packet(answer, version or error.version or MQTT_3_1_1, SERVER)


def _match(topic_filter):
    share_name, topic_filter = topics.split_shared(topic_filter)
    name = topic_filter.replace("+", "a").replace("#", "b/c") or "a"
    matched = topics.matches(topic_filter, name)
    assert topics.matches(topic_filter.encode(), name.encode()) == matched
    assert matched or name.startswith("$") or share_name


def sample_packets():
    connect = ConnectPacket(
        client_identifier="i", user_name="u", password=b"p",
        properties={"receive_maximum": 3, "user_property": [("a", "b")]},
        will=Will("w", b"x", 1, True, {"will_delay_interval": 5}))
    subscribe = (
        SubscribePacket(packet_identifier=2, properties={"subscription_identifier": 200}, subscriptions=(
            Subscription("$share/g/a/+", 2, retain_handling=1), Subscription("#", 1, True, True)))
    )
    after = (
        subscribe,
        PublishPacket(topic_name="a/b", payload=b"x", qos=1, packet_identifier=3, properties=PROPERTIES),
        PubackPacket(packet_identifier=3, reason_code=0x10, properties={"reason_string": "r"}),
        PubrelPacket(packet_identifier=4),
        UnsubscribePacket(packet_identifier=5, topic_filters=("a", "$share/g/b")), PingreqPacket(),
        AuthPacket(reason_code=0x19, properties={"authentication_method": "m", "authentication_data": b"d"}),
        DisconnectPacket(reason_code=4, properties={"session_expiry_interval": 1}))
    yield (
        b"\x00\x00\x00\x05\x01\x07" + connect.encode(MQTT_5) + b"".join(each.encode(MQTT_5) for each in after)
    )
    connect.version, connect.properties, connect.will = MQTT_3_1_1, {}, Will("w", b"x")
    yield b"\x00\x00\x00\x01\x01\x01" + connect.encode(MQTT_3_1_1) + subscribe.encode(MQTT_3_1_1)
    connect.version = MQTT_3_1
    yield b"\x00\x00\x00\x01\x01\x01" + connect.encode(MQTT_3_1) + PubrelPacket(packet_identifier=4).encode(
        MQTT_3_1
    )
    yield b"\x00\x00\x00\x01\x01\x01\x10\x0c\x00\x04MQTT\x09\x02\x00\x00\x00\x00"
    connack = ConnackPacket(
        session_present=True, properties={"assigned_client_identifier": "i", "server_keep_alive": 9}
    )
    suback = SubackPacket(packet_identifier=2, reason_codes=(0, 1, 0x87))
    unsuback = UnsubackPacket(packet_identifier=2, reason_codes=(0, 0x11))
    yield b"\x03\x01\x00\x02\x02\x02" + b"".join(each.encode(MQTT_5) for each in (connack, suback, unsuback))
    yield b"\x02\x01\x00\x02\x02\x02" + b"\x20\x02\x00\x05" + suback.encode(MQTT_3_1_1)[:-1] + b"\x80\xd0\x00"
    for version in (2, 3):
        yield bytes((version, 0, 1, 9, 9, 9)) + b"".join(each.encode(VERSIONS[version]) for each in after[:2])


# the walk

def run_walk(data):
    """The walk finds the packets that the codec finds, and of those that it takes the same fields."""
    draw = Draw(data)
    version, sender, limits = draw.choice(VERSIONS), draw.choice(SENDERS), draw.choice(LIMITS)
    start = draw.octet() % 4
    assert_equal_answers(bytes(start) + draw.rest(), version, sender, limits, start)


def sample_walk():
    values = encode_values(PROPERTIES, PUBLISH)
    topic = "a/ä\U0002a6d4".encode()
    for head in (b"\x03\x00\x00\x00", b"\x02\x00\x00\x01", b"\x01\x01\x01\x02", b"\x03\x01\x01\x03"):
        version = VERSIONS[head[0]]
        yield head + encode_publish(
            version, 0x0B, topic, 7, values, b"payload"
        ) + b"\x40\x02\x00\x01\x62\x02\x00\x01"
        yield head + encode_publish(
            version, 0, b"", 7, values, b""
        ) + b"\x50\x03\x00\x01\x00\x70\x04\x00\x01\x00\x00"
        yield head + b"\xc0\x80\x00\x30\xff\xff\xff\x7f"


# the crossing

def run_crossing(data):
    """Whatever a record holds as properties of a PUBLISH is malformed or becomes basic properties that all
    can read, and these become properties that a client accepts. So does whatever a client of AMQP has sent.
    """
    draw = Draw(data)
    qos, retain, topic, given = (
        draw.octet() % 3, draw.octet() % 2 == 1, draw.octets(draw.octet() % 40), draw.rest()
    )
    message = Message()
    message.assign(b"x", topic, given, b"", 1)
    message.set_kind(crossing.KIND, crossing.record_flags(qos, retain))
    try:
        raw = message.get_properties()
    except Malformed:
        pass
    else:
        assert len(raw) <= 65536
        Properties.decode(raw)
        assert crossing.flags_of_basic(raw, qos > 0) == message.describe()["flags"]
        values_of(crossing.block_of(raw))
    try:
        block = crossing.block_of(given, 5)
    except ValueError:
        return
    values_of(block)
    crossing.flags_of_basic(given, False)


def sample_crossing():
    for head in (b"\x00\x00\x03a.b", b"\x02\x01\x00"):
        yield head + encode_values(PROPERTIES, PUBLISH)
        yield head + encode_values(
            {
                "response_topic": "$default/q", "correlation_data": b"c",
                "user_property": [("mqtt.topic", "x")],
            },
            PUBLISH,
        )
        yield head + Properties(
            content_type="t", reply_to="q.r", correlation_id="c", message_id="m", timestamp=5, user_id="u",
            expiration="5", delivery_mode=2,
            headers={
                "a": "b", "n": 5, "f": 0.5, "t": True, "x": b"\xff", "mqtt.retain": True,
                "mqtt.response-topic": "a/b", "mqtt.correlation-data": b"\xff", "mqtt.content-type": "t",
                "mqtt.payload-format": 1, "x-mqtt-publish-qos": 2,
            }).encode()


WORDS = (
    b"\x00\x04MQTT\x04", b"\x00\x04MQTT\x05", b"\x00\x06MQIsdp\x03", b"\x00\x07$share/", b"\x00\x03a/#",
    b"\x00\x01+", b"\x26\x00\x00\x00\x00", b"\x0b\x01", b"\x23\x00\x01", b"\x02\x00\x00\x00\x01",
    b"\x08\x00\x01a", b"\xff\xff\xff\x7f", b"\xed\xa0\x80", b"\xf0\x90\x80\x80", b"\xc2\x80", b"\x30",
    b"\x32", b"\x82", b"\x00\x00",
)

CROSSING_WORDS = (
    b"\x0amqtt.topic", b"\x12x-mqtt-publish-qos", b"\x0bmqtt.retaint\x01", b"\x11mqtt.content-typeS",
    b"\x13mqtt.payload-format", b"\x15mqtt.correlation-data", b"\x13mqtt.response-topicS", b"$default/",
    b"\x20\x00\x00\x00\x00", b"\xff\xfc", b"\x03\x00\x01", b"\x09\x00\x01", b"\x26\x00\x01k\x00\x01v",
)

TARGETS = {
    "mqtt_packets": Target(run_packets, sample_packets, 1024, WORDS),
    "mqtt_walk": Target(run_walk, sample_walk, 1024, WORDS),
    "mqtt_crossing": Target(run_crossing, sample_crossing, 1024, (*WORDS, *CROSSING_WORDS)),
}
