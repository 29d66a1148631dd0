"""Outbound: what one client is sent, in literal octets, and what becomes of what it acknowledges."""
import gc
from pathlib import Path

import pytest

from gomq_py.mqtt.model.interests import Interest
from gomq_py.mqtt.wire.errors import ProtocolError
from gomq_py.mqtt.wire.topics import swapped
from gomq_py.storage.message import Message
from tests.support.mqtt_outbound import Peer, mqtt_message, mqtt_node, note_received, noted_of, publish

PUBACK, PUBREC, PUBREL, PUBCOMP = 4, 5, 6, 7
REPLAYED, OWN = 16, 64


@pytest.fixture
def nodes(tmp_path):
    """A function that boots a node over the same folder; ``how`` the one before ends."""
    running = []

    def boot(how="stop", **settings):
        if running:
            getattr(running.pop(), how)()
        running.append(mqtt_node(tmp_path / "data", **settings))
        return running[0]

    yield boot
    running.pop().stop()


@pytest.fixture
def node(nodes):
    return nodes()


# what a client is sent

def test_qos_0_goes_through_the_sink(node):
    peer = Peer(node, expiry_s=0).subscribe("a/+")

    publish(node, mqtt_message("a/b", b"hello"))

    peer.expect(b"\x30\x0b\x00\x03a/b\x00hello")
    assert peer.session.queue is None


def test_qos_0_of_a_session_that_is_kept_comes_from_its_queue_and_is_gone_from_it(node):
    peer = Peer(node, version=4).subscribe("a/+")

    publish(node, mqtt_message("a/b", b"hello", qos=1))

    peer.expect(b"\x30\x0a\x00\x03a/bhello")
    assert peer.session.queue.ready_count == peer.session.queue.unacked_count == 0


def test_qos_1_comes_from_the_queue_and_is_settled_by_puback(node):
    peer = Peer(node, version=4).subscribe("a/b", qos=1)

    publish(node, mqtt_message("a/b", b"hello", qos=2))

    peer.expect(b"\x32\x0c\x00\x03a/b\x00\x01hello")
    assert peer.session.queue.unacked_count == 1
    peer.acknowledge(PUBACK, 1)
    assert peer.session.queue.unacked_count == peer.session.queue.ready_count == 0


def test_qos_2_goes_in_four_steps(node):
    peer = Peer(node).subscribe("a/b", qos=2)

    publish(node, mqtt_message("a/b", b"hello", qos=2))

    peer.expect(b"\x34\x0d\x00\x03a/b\x00\x01\x00hello")
    peer.acknowledge(PUBREC, 1)
    peer.expect(b"\x62\x02\x00\x01")
    assert peer.session.queue.unacked_count == 0 and peer.outbound.sent.used == 1
    peer.acknowledge(PUBCOMP, 1)
    assert peer.outbound.sent.used == 0


def test_what_came_over_amqp_is_crossed(node):
    peer = Peer(node).subscribe("a/b", qos=1)

    # content type and delivery mode
    node.publish("amq.topic", "a.b", b"hello", b"\x90\x00\x04text\x02", persistent=True)

    peer.expect(b"\x32\x14\x00\x03a/b\x00\x01\x07\x03\x00\x04texthello")


@pytest.mark.parametrize("expiry_s", [0, 1000])
def test_properties_go_out_as_they_came_and_not_to_a_client_of_3_1_1(node, expiry_s):
    properties = b"\x01\x01\x26\x00\x01a\x00\x01b"  # payload format indicator 1, user property a: b
    new = Peer(node, "new", 5, expiry_s=expiry_s).subscribe("t")
    old = Peer(node, "old", 4, expiry_s=expiry_s).subscribe("t")

    publish(node, mqtt_message("t", b"x", properties=properties))

    new.expect(b"\x30\x0e\x00\x01t\x09" + properties + b"x")
    old.expect(b"\x30\x04\x00\x01tx")


@pytest.mark.parametrize("expiry_s", [0, 1000])
def test_message_expiry_interval_is_what_is_left(node, expiry_s):
    """[MQTT-3.3.2-6]"""
    now_ms = node.hub.scheduler.now_ms
    peer = Peer(node, expiry_s=expiry_s).subscribe("t", qos=0)
    message = mqtt_message(
        "t", b"x", properties=b"\x02\x00\x00\x00\x64", expires_in_ms=100_000, now_ms=now_ms - 7500)

    publish(node, message)

    # 100 s less the 7 whole seconds that it waited; one more may have passed
    packet = peer.packet()
    assert packet.properties["message_expiry_interval"] in (92, 93)


def test_overlapping_subscriptions_send_one_copy_at_the_highest_qos_with_all_identifiers(node):
    """[MQTT-3.3.4-2], [MQTT-3.3.4-3]"""
    peer = Peer(node)
    peer.subscribe("a/+", qos=0, identifier=300).subscribe("a/#", qos=2, identifier=7).subscribe("#", qos=1)

    publish(node, mqtt_message("a/b", b"x", qos=2))

    peer.expect(b"\x34\x0e\x00\x03a/b\x00\x01\x05\x0b\x07\x0b\xac\x02x")
    peer.expect_nothing()


def test_queue_and_sink_of_a_clean_session_send_one_copy_together(node):
    peer = Peer(node, version=4, expiry_s=0).subscribe("a/+", qos=0).subscribe("a/b", qos=1)

    publish(node, mqtt_message("a/b", b"1", qos=1), mqtt_message("a/c", b"2", qos=1))

    got = sorted((packet.topic_name, packet.qos, packet.payload) for packet in peer.packets(2))
    assert got == [("a/b", 1, b"1"), ("a/c", 0, b"2")]
    peer.expect_nothing()


@pytest.mark.parametrize("expiry_s", [0, 1000])
@pytest.mark.parametrize("qos", [0, 1])
def test_no_local_keeps_what_the_client_published_itself(node, expiry_s, qos):
    """[MQTT-3.8.3-3]"""
    peer = Peer(node, expiry_s=expiry_s).subscribe("a/b", qos=qos, no_local=True)
    other = Peer(node, "other")

    publish(
        node, mqtt_message("a/b", b"mine", qos, publisher=peer.session),
        mqtt_message("a/b", b"theirs", qos, publisher=other.session))

    assert peer.packet().payload == b"theirs"
    peer.expect_nothing()


def test_no_local_of_one_subscription_does_not_keep_what_another_one_asks_for(node):
    peer = Peer(node, expiry_s=0).subscribe("a/b", no_local=True).subscribe("a/+", identifier=3)

    publish(node, mqtt_message("a/b", b"mine", publisher=peer.session))

    peer.expect(b"\x30\x0c\x00\x03a/b\x02\x0b\x03mine")


def with_and_without_no_local(peer, is_first=True):
    """Subscriptions that differ in everything."""
    wanted = [
        ("a/#", {"qos": 2, "no_local": True, "retain_as_published": True, "identifier": 1}),
        ("a/x", {"qos": 1, "identifier": 2})]
    for topic_filter, options in wanted if is_first else reversed(wanted):
        peer.subscribe(topic_filter, **options)
    return peer


def as_sent(packet):
    return packet.payload, packet.qos, packet.retain, packet.properties["subscription_identifier"]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("expiry_s", [0, 1000])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_own_message_comes_as_the_subscription_without_no_local_wants_it(node, qos, expiry_s, is_first):
    """[MQTT-3.8.3-3], [MQTT-3.3.4-3]"""
    peer = with_and_without_no_local(Peer(node, expiry_s=expiry_s), is_first)

    publish(
        node, mqtt_message("a/x", b"mine", qos, True, publisher=peer.session),
        mqtt_message("a/x", b"theirs", qos, True))

    assert as_sent(peer.packet()) == (b"mine", min(qos, 1), False, [2])
    assert as_sent(peer.packet()) == (b"theirs", qos, True, [1, 2])


def test_own_message_is_known_as_such_after_a_kill(nodes):
    node = nodes()
    peer = with_and_without_no_local(Peer(node))
    peer.disconnect()
    publish(node, mqtt_message("a/x", b"mine", 2, True, publisher=peer.session))

    peer = Peer(nodes("kill"))

    assert as_sent(peer.packet()) == (b"mine", 1, False, [2])


def test_message_that_was_another_sessions_own_is_nobodys(node):
    """One that was dead-lettered, for instance."""
    peer = with_and_without_no_local(Peer(node))

    publish(node, mqtt_message("a/x", b"theirs", 2, True, more_flags=OWN))

    assert as_sent(peer.packet()) == (b"theirs", 2, True, [1, 2])


def test_own_message_and_others_of_its_topic_have_one_alias(node):
    peer = with_and_without_no_local(Peer(node, topic_alias_maximum=10))

    publish(node, mqtt_message("a/x", b"mine", publisher=peer.session), mqtt_message("a/x", b"theirs"))

    got = [(packet.topic_name, packet.properties["topic_alias"]) for packet in peer.packets(2)]
    assert got == [("a/x", 1), ("", 1)]


@pytest.mark.parametrize("expiry_s", [0, 1000])
def test_retain_is_kept_where_it_was_asked_for(node, expiry_s):
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]"""
    peer = Peer(node, expiry_s=expiry_s).subscribe("a").subscribe("b", retain_as_published=True)

    publish(node, mqtt_message("a", retain=True), mqtt_message("b", retain=True), mqtt_message("b"))

    assert [(packet.topic_name, packet.retain) for packet in peer.packets(3)] == [
        ("a", False), ("b", True), ("b", False)]


@pytest.mark.parametrize("expiry_s", [0, 1000])
def test_replayed_message_says_itself_how_it_goes_out(node, expiry_s):
    """Its QoS and RETAIN are those of the delivery, and so is the identifier in its properties."""
    peer = Peer(node, expiry_s=expiry_s).subscribe("a", qos=0, identifier=5)
    message = mqtt_message("a", b"x", 0, True, b"\x0b\x05", more_flags=REPLAYED)

    (peer.session.queue or peer.session.sink).publish(message)

    peer.expect(b"\x31\x07\x00\x01a\x02\x0b\x05x")


def test_topic_without_utf_8_or_with_a_wildcard_is_not_sent(node):
    peer = Peer(node).subscribe("#", qos=1)

    for key in (b"\xff", b"a.+", b"a\0b", b""):
        message = mqtt_message("t", b"bad", 1)
        message.assign(b"", key, b"\0\0", b"bad", 1, persistent=True)
        peer.session.queue.publish(message)
    publish(node, mqtt_message("t", b"good", 1))

    assert peer.packet().payload == b"good"
    assert peer.session.queue.ready_count == 0 and peer.outbound.consumer.dropped == 4


def _content(kind, properties, topic="t", expires_at_ms=1 << 60):
    """A message of any kind and with any octets as properties, as a damaged store may hold it."""
    message = Message()
    message.assign(
        b"amq.topic", swapped(topic).encode(), properties, b"bad", 1, expires_at_ms, persistent=True)
    message.set_kind(kind, 2)
    return message


@pytest.mark.parametrize("kind, properties", [
    (2, b"\0"), (2, b"\xff"), (2, b"\x0b"), (2, b"\x26\0\xff"), (2, b"\x03\0\xfft"), (2, b"\x02\0\0\0"),
    (1, b"\x20\0\x7f\xff\xff\xff"), (1, b"\x20\0\0\0\0\x0e\x12x-mqtt-publish-qos"), (1, b"\xff\xff\xff"),
    (3, b""), (0, b""),
])
@pytest.mark.parametrize("version", [4, 5])
def test_content_that_nobody_can_read_is_set_aside_and_what_is_behind_it_goes_on(
    node, kind, properties, version
):
    peer = Peer(node, version=version).subscribe("t", qos=1)
    queue = peer.session.queue

    queue.publish(_content(kind, properties))
    publish(node, mqtt_message("t", b"good", 1))

    assert peer.packet().payload == b"good" and queue.aside.count == 1
    peer.disconnect()
    again = Peer(node, version=version)
    assert again.packet().payload == b"good" and again.outbound.consumer.dropped == 0
    again.acknowledge(PUBACK, 1)
    assert queue.ready_count == 0 and queue.unacked_count == 1


@pytest.mark.parametrize("kind, properties", [(2, b"\xff"), (1, b"\x20\0\x7f\xff\xff\xff"), (3, b"")])
def test_sink_drops_content_that_nobody_can_read(node, kind, properties):
    peer = Peer(node, expiry_s=0).subscribe("t", qos=0)

    peer.session.sink.publish(_content(kind, properties))
    publish(node, mqtt_message("t", b"good"))

    assert peer.packet().payload == b"good" and peer.session.sink.dropped == 1


# limits of the client

@pytest.mark.parametrize("expiry_s", [0, 1000])
def test_message_larger_than_the_client_accepts_is_dropped(node, expiry_s):
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: the packet as a whole counts."""
    peer = Peer(node, maximum_packet_size=20, expiry_s=expiry_s).subscribe("t", qos=0)

    publish(node, mqtt_message("t", b"x" * 15), mqtt_message("t", b"x" * 14))

    assert peer.packet().payload == b"x" * 14
    peer.expect_nothing()


def test_no_more_are_under_way_than_the_client_accepts(node):
    """[MQTT-3.3.4-9]: until PUBACK, PUBCOMP, or a PUBREC that refuses."""
    peer = Peer(node, receive_maximum=2).subscribe("t", qos=2)
    publish(node, *(mqtt_message("t", b"%d" % number, 2) for number in range(5)))
    assert [packet.payload for packet in peer.packets(2)] == [b"0", b"1"]

    peer.acknowledge(PUBREC, 1)
    peer.expect(b"\x62\x02\x00\x01")
    peer.expect_nothing()
    peer.acknowledge(PUBCOMP, 1)
    assert peer.packet().payload == b"2"
    peer.acknowledge(PUBREC, 2, 0x80)
    assert peer.packet().payload == b"3"
    peer.expect_nothing()


def test_topic_aliases_are_given_up_to_the_clients_maximum(node):
    """[MQTT-3.3.2-8] and so on: alias and name, then the alias alone; others go by name."""
    peer = Peer(node, topic_alias_maximum=1).subscribe("+", qos=0)

    publish(node, mqtt_message("a", b"1"), mqtt_message("a", b"2"), mqtt_message("b", b"3"))

    peer.expect(b"\x30\x08\x00\x01a\x03\x23\x00\x011")
    peer.expect(b"\x30\x07\x00\x00\x03\x23\x00\x012")
    peer.expect(b"\x30\x05\x00\x01b\x003")


def test_message_without_properties_is_sent_when_the_file_of_one_that_had_some_is_gone(nodes):
    """Its subscription identifiers stand where properties do. Interpreted, d3c11ca0 closed the session."""
    node = nodes(segment_size=65536)
    Peer(node).subscribe("a", qos=1, identifier=5).disconnect()
    large = bytes(40_000)
    publish(node, mqtt_message("a", large, qos=1, properties=b"\x01\x01"), mqtt_message("a", large, qos=1))
    node = nodes(segment_size=65536)
    peer = Peer(node)
    first = f"{peer.session.queue.store.folder}/msgs.0000000001"

    for number in 1, 2:
        assert len(peer.packet().payload) == len(large)
        assert number == 2 or first in Path("/proc/self/maps").read_text()
        peer.acknowledge(PUBACK, number)
    node.wait(lambda: first not in Path("/proc/self/maps").read_text())
    publish(node, mqtt_message("a", b"x", qos=1))

    peer.expect(b"\x32\x09\x00\x01a\x00\x03\x02\x0b\x05x")


def test_next_connection_has_no_topic_aliases(node):
    peer = Peer(node, topic_alias_maximum=5).subscribe("a", qos=0)
    publish(node, mqtt_message("a", b"1"))
    peer.packet()
    peer.disconnect()

    again = Peer(node, topic_alias_maximum=5)
    publish(node, mqtt_message("a", b"2"))

    again.expect(b"\x30\x08\x00\x01a\x03\x23\x00\x012")


# acknowledgements

def test_what_is_remembered_of_topics_goes_with_the_connection(node):
    peer = Peer(node).subscribe("a/+", qos=1)
    publish(node, mqtt_message("a/b", qos=1))
    peer.packet()
    found = peer.session.interests.found

    peer.disconnect()

    assert list(found) == [b"a.b"] and not peer.session.interests.found


def test_what_is_remembered_of_very_many_topics_goes_without_the_collector(node):
    peer = Peer(node).subscribe("#", qos=0)
    gc.collect()
    gc.disable()
    try:
        for number in range(3000):
            publish(node, mqtt_message(f"t/{number}"))
            peer.packet()
        kept = sum(isinstance(one, Interest) for one in gc.get_objects())
    finally:
        gc.enable()

    assert 0 < len(peer.session.interests.found) <= kept < 1100


def test_puback_of_an_unknown_identifier_changes_nothing(node):
    peer = Peer(node).subscribe("t", qos=1)

    peer.acknowledge(PUBACK, 9)
    peer.acknowledge(PUBCOMP, 9)

    peer.expect_nothing()


def test_pubrec_of_an_unknown_identifier_is_answered_not_found(node):
    peer = Peer(node)

    peer.acknowledge(PUBREC, 0x1234)

    peer.expect(b"\x62\x03\x12\x34\x92")


@pytest.mark.parametrize("qos, kind", [(1, PUBREC), (1, PUBCOMP), (2, PUBACK), (2, PUBCOMP)])
def test_wrong_acknowledgement_is_a_protocol_error(node, qos, kind):
    peer = Peer(node).subscribe("t", qos=qos)
    publish(node, mqtt_message("t", b"x", qos))
    peer.packet()

    with pytest.raises(ProtocolError):
        peer.outbound.acknowledged(kind, 1)


def test_pubrec_that_refuses_ends_the_exchange(node):
    """[MQTT-4.4.0-2]"""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    peer.packet()

    peer.acknowledge(PUBREC, 1, 0x97)

    peer.expect_nothing()
    assert peer.outbound.sent.used == peer.session.queue.unacked_count == 0


def test_second_pubrec_gets_a_second_pubrel(node):
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"x", 2))
    peer.packet()

    peer.acknowledge(PUBREC, 1)
    peer.acknowledge(PUBREC, 1)

    peer.expect(b"\x62\x02\x00\x01" * 2)


# connections that come and go

def test_unacknowledged_messages_come_again_first_in_order_with_dup_and_their_identifiers(node):
    """[MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-4.6.0-6]"""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, *(mqtt_message("t", b"%d" % number, 1 + number % 2) for number in range(4)))
    sent = [(packet.payload, packet.packet_identifier, packet.qos) for packet in peer.packets(4)]
    peer.acknowledge(PUBACK, 1)
    peer.disconnect()
    publish(node, mqtt_message("t", b"new", 1))

    again = Peer(node).packets(4)

    assert [(packet.payload, packet.packet_identifier, packet.qos) for packet in again[:3]] == sent[1:]
    assert [packet.dup for packet in again] == [True, True, True, False]
    assert again[3].payload == b"new"


def test_pubrel_comes_again_instead_of_a_message_that_was_received(node):
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"1", 2), mqtt_message("t", b"2", 2))
    peer.packets(2)
    peer.acknowledge(PUBREC, 1)
    peer.disconnect()

    again = Peer(node)

    again.expect(b"\x62\x02\x00\x01")
    again.expect(b"\x3c\x07\x00\x01t\x00\x02\x002")
    again.acknowledge(PUBCOMP, 1)
    assert again.outbound.sent.used == 1


def test_message_that_is_gone_meanwhile_is_released(node):
    """The client may have its identifier, and would take the next message with it for the same."""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"1", 2))
    peer.packet()
    peer.disconnect()
    peer.session.queue.purge()

    again = Peer(node)

    again.expect(b"\x62\x02\x00\x01")
    again.expect_nothing()


def may_go(queue):
    """The answer for each message that is ready, which are taken out."""
    found, message = [], Message()
    while queue.head(message):
        found.append(bool(queue.may_go(message)))
        assert queue.get(message, True)
    return found


@pytest.mark.parametrize("is_back", [False, True], ids=["absent", "back"])
def test_what_was_sent_at_qos_2_may_not_expire(node, is_back):
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, *[mqtt_message("t", b"%d" % number, qos=2 - number % 2) for number in range(4)])
    peer.packets(4)
    peer.disconnect()
    publish(node, mqtt_message("t", b"4", qos=2))

    if is_back:
        Peer(node)

    assert may_go(peer.session.queue) == [False, True, False, True, True]


def test_what_was_received_may_expire(node):
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", qos=2), mqtt_message("t", qos=2))
    peer.packets(2)
    peer.disconnect()
    again = Peer(node)
    again.packets(2)
    again.acknowledge(PUBREC, 1)
    again.packet()
    again.disconnect()

    assert may_go(again.session.queue) == [False]


@pytest.mark.parametrize("purge", ["purge", "purge_some"])
def test_purge_releases_what_waits_to_be_sent_again(node, purge):
    """PUBREL is all that the client waits for, and no message may come that brings it about."""
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, *[mqtt_message("t", b"%d" % each, 2) for each in (1, 2, 3)])
    peer.packets(3)
    peer.disconnect()
    again = Peer(node, receive_maximum=1)
    again.expect(b"\x3c\x07\0\1t\0\1\0001")

    getattr(peer.session.queue, purge)(*[10][:purge == "purge_some"])

    again.expect(b"\x62\2\0\2\x62\2\0\3")
    again.acknowledge(PUBREC, 1)
    again.expect(b"\x62\2\0\1")
    for identifier in (1, 2, 3):
        again.acknowledge(PUBCOMP, identifier)
    assert again.outbound.sent.used == again.outbound.sent.count == 0
    publish(node, mqtt_message("t", b"4", 2))
    assert again.packet().payload == b"4"


def test_nothing_is_sent_before_connack(node):
    Peer(node).subscribe("t", qos=1).disconnect()
    publish(node, mqtt_message("t", b"1", 1))

    peer = Peer(node, begin=False)
    peer.expect_nothing()
    peer.outbound.begin()

    assert peer.packet().payload == b"1"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_restart_keeps_identifiers_of_qos_2(nodes, how):
    node = nodes()
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, *(mqtt_message("t", b"%d" % number, 2) for number in range(3)))
    peer.packets(3)
    peer.acknowledge(PUBREC, 2)
    peer.expect(b"\x62\x02\x00\x02")
    if how == "stop":
        peer.disconnect()

    again = Peer(nodes(how), version=4)
    publish(again.node, mqtt_message("t", b"new", 2))

    # 2 was received: its PUBREL comes where the message would
    again.expect(b"\x3c\x06\x00\x01t\x00\x010")
    got = again.packets(3)
    assert sorted((packet.TYPE, packet.packet_identifier) for packet in got) == [(3, 3), (3, 4), (6, 2)]
    assert [packet.payload for packet in got if packet.TYPE == 3] == [b"2", b"new"]
    for identifier in (1, 3, 4):
        again.acknowledge(PUBREC, identifier)
    for identifier in (1, 2, 3, 4):
        again.acknowledge(PUBCOMP, identifier)
    assert again.outbound.sent.used == 0 and noted_of(again.sessions.qos2_records) == 0


def test_message_of_an_identifier_that_outlived_its_mark_in_the_queue_has_dup(node):
    """As after a loss of power: the store of identifiers was on the disk, and the queue's mark was not. On
    4f7c89f1 it had no DUP.
    """
    before = Peer(node).subscribe("t", qos=2)
    before.disconnect()
    publish(node, mqtt_message("t", b"1", 2))
    session, message = before.session, Message()
    assert session.queue.peek(message)
    shown = message.describe()
    assert not shown["redelivered"]
    session.sent_from(session.queue).restore([(5, shown["location"], 0, shown["timestamp_ms"])])

    packet = Peer(node).packet()

    assert (packet.payload, packet.packet_identifier, packet.dup) == (b"1", 5, True)


def test_session_that_ends_leaves_no_identifiers(node):
    peer = Peer(node).subscribe("t", qos=2)
    publish(node, mqtt_message("t", b"1", 2))
    peer.packet()
    note_received(peer.session.received_ids(), 5)
    peer.disconnect()

    Peer(node, clean_start=True)

    node.wait(lambda: noted_of(peer.sessions.qos2_records) == 0)  # once the disk has its end


# a client that does not read

def test_sink_of_a_client_that_does_not_read_keeps_its_share_and_drops_the_rest(node):
    peer = Peer(node, expiry_s=0, output_limit=100_000, socket_octets=4096).subscribe("t")

    publish(node, *(mqtt_message("t", b"x" * 1000) for _ in range(1000)))

    sink = peer.outbound.sink
    assert sink.dropped > 800 and peer.output.pending_octets() <= 50_000 + 65536 and not peer.heard
    got = peer.packets(sink.sent)
    assert len(got) == 1000 - sink.dropped
    publish(node, mqtt_message("t", b"after"))
    assert peer.packet().payload == b"after"


def test_queue_of_a_client_that_does_not_read_keeps_its_messages(node):
    peer = Peer(node, output_limit=100_000, socket_octets=4096).subscribe("t", qos=1)

    publish(node, *(mqtt_message("t", b"%d" % number + b"x" * 1000, 1) for number in range(1000)))
    peer.poll(300)

    assert peer.output.pending_octets() < 200_000 and peer.session.queue.ready_count > 500
    numbers = []
    while len(numbers) < 1000:
        packet = peer.packet()
        numbers.append(int(packet.payload.rstrip(b"x")))
        peer.acknowledge(PUBACK, packet.packet_identifier)
    assert numbers == list(range(1000))


@pytest.mark.parametrize("expiry_s", [0, 1000])
def test_messages_larger_than_any_buffer_go_out_whole(node, expiry_s):
    peer = Peer(node, expiry_s=expiry_s).subscribe("t", qos=0)
    large = bytes(range(256)) * 4096  # 1 MiB

    publish(node, mqtt_message("t", b"before"), mqtt_message("t", large), mqtt_message("t", b"after"))

    assert peer.packet().payload == b"before"
    assert peer.packet().payload == large
    if expiry_s:  # a sink drops what comes while the socket is full
        assert peer.packet().payload == b"after"
    assert not peer.heard


def test_what_a_connection_hears_after_it_was_taken_over_changes_nothing(node):
    peer = Peer(node).subscribe("t", qos=1)
    publish(node, mqtt_message("t", b"x", 1))
    peer.packet()

    again = Peer(node)
    peer.acknowledge(PUBACK, 1)

    assert peer.heard == ["taken over"] and again.packet().dup
    peer.acknowledge(PUBACK, 1)
    assert again.outbound.sent.used == 1
