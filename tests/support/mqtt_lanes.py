"""The two lanes of MQTT's wire side by side: what the walk over a buffer finds,
and what the codec says of the same octets.
"""
from gomq_py.mqtt.wire.codec import decode_fixed_header, decode_packet
from gomq_py.mqtt.wire.constants import (
    CLIENT, DEFAULT_LIMITS, MQTT_5, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL,
)
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.frames import PacketWalk
from gomq_py.mqtt.wire.packets import PublishPacket
from tests.support.guarded import GuardedBuffer

_buffer = GuardedBuffer()


def walked(octets, version, sender=CLIENT, limits=DEFAULT_LIMITS, start=0):
    """What a walk says of octets that begin at ``start``: [(type, its fields or None, offset behind it)], how
    it ended.
    """
    walk = PacketWalk(version, sender, limits)
    found = []
    walk.begin(_buffer.place(octets), start, len(octets))
    try:
        while kind := walk.next_packet():
            found.append((kind, fields_of(walk, kind, octets) if walk.plain else None, walk.position))
    except MQTTError as error:
        return found, str(error)
    return found, walk.finish()


def fields_of(walk, kind, octets):
    """The fields of a plain packet, by the ranges that the walk found."""
    if kind != PUBLISH:
        return {"packet_identifier": walk.packet_identifier}
    properties = {}
    for name, at, size in (
            ("payload_format_indicator", walk.payload_format_at, 1),
            ("message_expiry_interval", walk.message_expiry_at, 4),
            ("topic_alias", walk.topic_alias_at, 2)):
        if at >= 0:
            properties[name] = int.from_bytes(octets[at:at + size], "big")
    assert walk.topic_alias == properties.get("topic_alias", 0)
    return {
        "topic_name": octets[walk.topic_at:walk.topic_at + walk.topic_length].decode(), "qos": walk.qos,
        "retain": walk.retain, "dup": walk.dup, "packet_identifier": walk.packet_identifier,
        "properties": properties,
        "octets": octets[walk.properties_at:walk.properties_at + walk.properties_length],
        "payload": octets[walk.payload_at:walk.payload_at + walk.payload_length],
    }


def expected(packet, version):
    """What a plain packet's fields are, by the codec's object."""
    if not isinstance(packet, PublishPacket):
        assert not packet.reason_code and not packet.properties
        return {"packet_identifier": packet.packet_identifier}
    found = ("payload_format_indicator", "message_expiry_interval", "topic_alias")
    return {
        "topic_name": packet.topic_name, "qos": packet.qos, "retain": packet.retain, "dup": packet.dup,
        "packet_identifier": packet.packet_identifier, "payload": packet.payload,
        "properties": {name: value for name, value in packet.properties.items() if name in found},
    }


def decoded(octets, version, sender=CLIENT, limits=DEFAULT_LIMITS, start=0):
    """As walked, by the codec: an error where a packet is no good."""
    found, at = [], start
    while True:
        try:
            head = decode_fixed_header(octets, at, len(octets), version, sender, limits)
        except MQTTError as error:
            return found, str(error)
        if head is None or head[2] > len(octets):
            return found, at
        try:
            packet = decode_packet(octets[at:head[2]], version, sender, limits)
        except MQTTError as error:
            packet = error
        found.append((head[0].TYPE, packet, head[2]))
        at = head[2]


def assert_equal_answers(octets, version, sender=CLIENT, limits=DEFAULT_LIMITS, start=0):
    """The walk finds the same packets and the same end; what it calls plain is right, and has the codec's
    fields.

    And the other way round: what the codec accepts, and what a lane is made for, is plain.
    """
    fast, fast_end = walked(octets, version, sender, limits, start)
    slow, slow_end = decoded(octets, version, sender, limits, start)
    assert fast_end == slow_end
    assert [(kind, end) for kind, _, end in fast] == [(kind, end) for kind, _, end in slow]
    for (kind, fields, _), (_, packet, _) in zip(fast, slow, strict=True):
        accepted = not isinstance(packet, MQTTError)
        if fields is not None:
            assert accepted, packet
            values = fields.pop("octets", b"")
            assert fields == expected(packet, version)
            assert not values or len(values) >= 2
        elif accepted:
            assert kind not in (PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP) or kind != PUBLISH and (
                packet.reason_code or packet.properties or version == MQTT_5)
    return fast, fast_end
