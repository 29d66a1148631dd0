"""SUBSCRIBE and UNSUBSCRIBE in literal octets: what is granted, and when it is said."""
from types import SimpleNamespace

import pytest

from gomq_py.broker.verbs import bindings
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.server import broker_topics, subscribe as subscribe_module
from tests.support.door import poll_the_loop, poll_until
from tests.unit.mqtt.server.conftest import CONNACK_5, CONNECT_5, CONNECT_311

# CONNECT as conftest has them, of a session that is kept for ever.
KEPT_311 = CONNECT_311[:9] + b"\xc0" + CONNECT_311[10:]
KEPT_5 = (
    b"\x10\x21\x00\x04MQTT\x05\xc2\x00\x3c\x05\x11\xff\xff\xff\xff\x00\x01c\x00\x05guest\x00\x05guest"
)
# Receive maximum 1.
CONNECT_ONE_AT_A_TIME = (
    b"\x10\x1f\x00\x04MQTT\x05\xc2\x00\x3c\x03\x21\x00\x01\x00\x01c\x00\x05guest\x00\x05guest"
)
PING, PONG = b"\xc0\x00", b"\xd0\x00"
NOT_AUTHORIZED, FILTER_INVALID, QUOTA_EXCEEDED = b"\x87", b"\x8f", b"\x97"


@pytest.fixture
def modern(mqtt):
    """A client of MQTT 5."""
    return mqtt.client(CONNECT_5, CONNACK_5)


def subscribe(*filters, options=1, identifier=1, properties=b""):
    """SUBSCRIBE of MQTT 5."""
    body = identifier.to_bytes(2, "big") + bytes((len(properties),)) + properties
    for topic_filter in filters:
        body += len(topic_filter).to_bytes(2, "big") + topic_filter + bytes((options,))
    assert len(body) < 128
    return b"\x82" + bytes((len(body),)) + body


def suback(codes, identifier=1):
    """SUBACK of MQTT 5."""
    return b"\x90" + bytes((3 + len(codes),)) + identifier.to_bytes(2, "big") + b"\x00" + codes


def sessions_of(mqtt):
    return mqtt.broker.vhosts["/"].extras[EXTRA].by_client


def test_octets_of_these_tests_are_what_they_say():
    assert subscribe(b"a") == b"\x82\x07\x00\x01\x00\x00\x01a\x01"
    assert suback(b"\x01") == b"\x90\x04\x00\x01\x00\x01"


def test_each_filter_is_answered_in_its_order(mqtt):
    client = mqtt.client()

    client.send(b"\x82\x10\x00\x0a\x00\x01a\x02\x00\x01b\x00\x00\x03c/#\x01")

    client.expect(b"\x90\x05\x00\x0a\x02\x00\x01")
    assert {key: each.qos for key, each in sessions_of(mqtt)["c"].subscriptions.items()} == {
        "a": 2, "b": 0, "c/#": 1
    }


def test_subscriptions_end_by_unsubscribe_once(mqtt, modern):
    modern.send(subscribe(b"a"))
    modern.expect(suback(b"\x01"))

    modern.send(b"\xa2\x09\x00\x02\x00\x00\x01a\x00\x01b")

    modern.expect(b"\xb0\x05\x00\x02\x00\x00\x11")
    assert sessions_of(mqtt)["c"].subscriptions == {}


def test_unsuback_of_3_1_1_has_no_codes(mqtt):
    client = mqtt.client()

    client.send(b"\xa2\x05\x00\x02\x00\x01a")

    client.expect(b"\xb0\x02\x00\x02")


def test_options_and_identifier_are_those_of_the_subscription(mqtt, modern):
    modern.send(subscribe(b"a", options=0b101110, properties=b"\x0b\x07"))

    modern.expect(suback(b"\x02"))
    (found,) = sessions_of(mqtt)["c"].subscriptions.values()
    assert found == Subscription("a", 2, True, True, 2, 7)


# rights

@pytest.mark.parametrize("rights", [("", ".*", ".*"), (".*", "", ".*"), (".*", ".*", ""),
                                    ("^mqtt[.]d$", ".*", ".*"), (".*", ".*", "^mqtt[.]")])
def test_rights_on_session_and_exchange_are_asked_for(mqtt, modern, rights):
    mqtt.broker.users.set_permission("guest", "/", *rights)

    modern.send(subscribe(b"a"))

    modern.expect(suback(NOT_AUTHORIZED))
    assert sessions_of(mqtt)["c"].subscriptions == {}


def test_rights_that_suffice_are_these(mqtt, modern):
    mqtt.broker.users.set_permission("guest", "/", "^mqtt[.]c$", "^mqtt[.]c$", "^amq[.]topic$")

    modern.send(subscribe(b"a"))

    modern.expect(suback(b"\x01"))


def test_client_of_3_1_1_is_told_of_a_failure(mqtt):
    mqtt.broker.users.set_permission("guest", "/", "", "", "")
    client = mqtt.client()

    client.send(b"\x82\x06\x00\x01\x00\x01a\x01")

    client.expect(b"\x90\x03\x00\x01\x80")


def test_topic_permission_is_asked_for_the_filter_as_a_binding_key(mqtt, modern):
    mqtt.broker.users.set_topic_permission("guest", "/", "amq.topic", "", "^{client_id}[.]([*]|x)$")

    modern.send(subscribe(b"c/x", b"c/+", b"c/y", b"c/#", b"$share/g/c/x", b"$share/g/d/x"))

    modern.expect(suback(b"\x01\x01\x87\x87\x01\x87"))


def test_client_id_in_a_topic_permission_is_no_expression(mqtt):
    mqtt.broker.users.set_topic_permission("guest", "/", "amq.topic", "", "^{client_id}$")
    client = mqtt.client(CONNECT_5.replace(b"\x00\x01c", b"\x00\x01."), CONNACK_5)

    client.send(subscribe(b"x", b"/"))  # the routing key of / is a dot

    client.expect(suback(b"\x87\x01"))


def test_operator_may_have_no_rights_asked_for(make_mqtt, caplog):
    mqtt = make_mqtt(mqtt_permission_check_enabled=False)
    mqtt.broker.users.set_permission("guest", "/", "", "", "")
    client = mqtt.client(CONNECT_5, CONNACK_5)

    client.send(subscribe(b"a"))

    client.expect(suback(b"\x01"))
    assert "permission_check_enabled is false" in caplog.text


def test_rights_that_are_withdrawn_count_at_once(mqtt, modern):
    """Of two subscriptions one is not granted any more: nothing comes by it until it is again."""
    users = mqtt.broker.users
    modern.send(subscribe(b"a", b"b", options=0))
    modern.expect(suback(b"\x00\x00"))
    publish_a, publish_b = b"\x30\x05\x00\x01a\x00x", b"\x30\x05\x00\x01b\x00x"
    modern.send(publish_a + publish_b)
    modern.expect(publish_a + publish_b)

    users.set_topic_permission("guest", "/", "amq.topic", ".*", "^b$")
    modern.send(publish_a + publish_b)
    modern.expect(publish_b)
    users.delete_topic_permissions("guest", "/")
    modern.send(publish_a)

    modern.expect(publish_a)


def test_right_to_the_exchange_that_is_withdrawn_counts_at_once(mqtt, modern):
    """Nothing comes by any filter until it is there again."""
    users, publish = mqtt.broker.users, b"\x30\x05\x00\x01a\x00"
    modern.send(subscribe(b"a", options=0))
    modern.expect(suback(b"\x00"))
    modern.send(publish + b"1")
    modern.expect(publish + b"1")

    users.set_permission("guest", "/", ".*", ".*", "^$")
    modern.send(publish + b"2" + PING)
    modern.expect(PONG)
    users.set_permission("guest", "/", ".*", ".*", ".*")
    modern.send(publish + b"3")

    modern.expect(publish + b"3")


def test_rights_that_are_the_same_for_all_filters_are_asked_once_for_each_change(mqtt, modern, monkeypatch):
    asked = []

    def check_own(*arguments, check_own=bindings.check_own):
        asked.append(arguments)
        check_own(*arguments)

    publishes = [b"\x30\x05\x00\x01%c\x00x" % letter for letter in range(ord("a"), ord("z") + 1)]
    for publish in publishes:
        modern.send(subscribe(publish[4:5], options=0))
        modern.expect(suback(b"\x00"))
    monkeypatch.setattr(bindings, "check_own", check_own)

    for _ in range(2):
        modern.send(b"".join(publishes))
        modern.expect(b"".join(publishes))
        mqtt.broker.users.set_permission("guest", "/", ".*", ".*", ".")

    assert len(asked) == 2


@pytest.mark.parametrize("is_withdrawn", [True, False], ids=["withdrawn", "there"])
def test_what_waits_for_a_client_that_has_unsubscribed_comes_while_it_has_the_right(mqtt, is_withdrawn):
    publish = b"\x32\x07\x00\x01a\x00%c\x00x"
    client = mqtt.client(CONNECT_ONE_AT_A_TIME, CONNACK_5)
    client.send(subscribe(b"a"))
    client.expect(suback(b"\x01"))
    publisher = mqtt.client(CONNECT_5.replace(b"\x00\x01c", b"\x00\x01d"), CONNACK_5)
    publisher.send(publish % 1 + publish % 2)
    publisher.expect(b"\x40\x02\x00\x01\x40\x02\x00\x02")
    client.expect(publish % 1)

    if is_withdrawn:
        mqtt.broker.users.set_topic_permission("guest", "/", "amq.topic", ".*", "^b$")
    client.send(b"\xa2\x06\x00\x02\x00\x00\x01a")
    client.expect(b"\xb0\x04\x00\x02\x00\x00")
    client.send(b"\x40\x02\x00\x01")

    if is_withdrawn:
        client.expect_nothing()
    else:
        client.expect(publish % 2)
    assert sessions_of(mqtt)["c"].queue.ready_count == 0


def test_session_is_not_reached_by_the_name_of_its_queue(mqtt, modern):
    modern.send(subscribe(b"a"))
    modern.expect(suback(b"\x01"))

    modern.send(b"\x32\x15\x00\x0f$default/mqtt/c\x00\x01\x00x")

    modern.expect(b"\x40\x03\x00\x01\x10")  # no matching subscribers
    modern.expect_nothing()


# limits

def test_session_has_as_many_subscriptions_as_its_limit(make_mqtt):
    mqtt = make_mqtt(mqtt_max_subscriptions=2)
    client = mqtt.client(CONNECT_5, CONNACK_5)

    client.send(subscribe(b"a", b"b", b"c", b"a"))

    client.expect(suback(b"\x01\x01" + QUOTA_EXCEEDED + b"\x01"))


@pytest.mark.parametrize("begins, octets, code", [
    (b"\x82\x8e\x02\x00\x01\x00\x01\x08", 255, b"\x01"),
    (b"\x82\x8f\x02\x00\x01\x00\x01\x09", 256, FILTER_INVALID),
])
def test_share_name_has_as_many_octets_as_a_filter(modern, begins, octets, code):
    modern.send(begins + b"$share/" + b"g" * octets + b"/a\x01")

    modern.expect(suback(code))


def test_filters_of_a_packet_that_are_refused_are_one_line_in_the_log(mqtt, modern, caplog):
    mqtt.broker.users.set_topic_permission("guest", "/", "amq.topic", ".*", "^b$")

    modern.send(subscribe(*[b"%d" % number for number in range(5)]))

    modern.expect(suback(NOT_AUTHORIZED * 5))
    assert caplog.text.count("it does not subscribe to") == 1


def test_filter_has_as_many_levels_as_its_limit(make_mqtt):
    mqtt = make_mqtt(mqtt_max_topic_levels=3)
    client = mqtt.client(CONNECT_5, CONNACK_5)

    client.send(subscribe(b"a/b/c", b"a/b/c/d", b"//", b"///", b"$share/g/a/b/c"))

    client.expect(suback(b"\x01" + FILTER_INVALID + b"\x01" + FILTER_INVALID + b"\x01"))


def test_filter_that_no_topic_can_match_is_refused(modern):
    body = b"\x00\x01\x00\x01\x00" + 256 * b"a" + b"\x01"

    modern.send(b"\x82\x86\x02" + body)

    modern.expect(suback(FILTER_INVALID))


def test_filters_of_one_packet_are_bounded(modern):
    body = b"\x00\x01\x00" + 1025 * b"\x00\x01a\x00"

    modern.send(b"\x82" + bytes((len(body) & 0x7F | 0x80, len(body) >> 7)) + body)

    modern.expect(b"\xe0\x01" + QUOTA_EXCEEDED)
    modern.expect_end()


# the disk

def test_suback_of_a_session_that_is_kept_waits_for_the_disk(make_mqtt):
    mqtt = make_mqtt(manual=True)
    committer = mqtt.door.committer
    client = mqtt.stranger()
    client.send(KEPT_5)
    client.expect_nothing()
    committer.finish()
    client.expect(CONNACK_5)

    client.send(subscribe(b"a"))
    client.expect_nothing()
    client.send(b"\xc0\x00")
    client.expect(b"\xd0\x00")
    committer.finish()

    client.expect(suback(b"\x01"))


def test_suback_of_what_is_not_kept_waits_for_nothing(make_mqtt):
    mqtt = make_mqtt(manual=True)
    client = mqtt.client(CONNECT_5, CONNACK_5)

    client.send(subscribe(b"a"))

    client.expect(suback(b"\x01"))


def test_subscription_that_the_disk_refuses_is_a_failure(make_mqtt):
    mqtt = make_mqtt(manual=True)
    client = mqtt.stranger()
    client.send(KEPT_5)
    client.expect_nothing()
    mqtt.door.committer.finish()
    client.expect(CONNACK_5)

    client.send(subscribe(b"a"))
    client.expect_nothing()
    mqtt.door.committer.finish(OSError(5, "the disk failed"))

    client.expect(suback(b"\x80"))


def test_session_that_the_disk_refuses_is_refused(make_mqtt):
    mqtt = make_mqtt(manual=True)
    client = mqtt.stranger()
    client.send(KEPT_5)
    client.expect_nothing()

    mqtt.door.committer.finish(OSError(5, "the disk failed"))

    client.expect(b"\x20\x03\x00\x88\x00")
    client.expect_end()


# what it costs

@pytest.fixture
def slices_of_one(monkeypatch):
    """Each filter is a slice of its own."""
    monkeypatch.setattr(subscribe_module, "SliceClock", lambda: SimpleNamespace(is_over=lambda: True))


PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
FILTERS = [b"%03d" % number for number in range(200)]
SUBSCRIBE_200 = b"\x82\xb3\x09\x00\x01\x00" + b"".join([b"\x00\x03%b\x00" % each for each in FILTERS])
SUBACK_200 = b"\x90\xcb\x01\x00\x01\x00" + bytes(200)
UNSUBSCRIBE_200 = b"\xa2\xeb\x07\x00\x01\x00" + b"".join([b"\x00\x03%b" % each for each in FILTERS])
UNSUBACK_200 = b"\xb0" + SUBACK_200[1:]


def test_others_have_their_turns_between_the_filters_of_a_packet(mqtt, modern, slices_of_one):
    """And what follows the packet is done behind it."""
    other = mqtt.client(CONNECT_5.replace(b"\x00\x01c", b"\x00\x01d"), CONNACK_5)
    counts = []

    for packet, answer in ((SUBSCRIBE_200, SUBACK_200), (UNSUBSCRIBE_200, UNSUBACK_200)):
        modern.send(packet + PINGREQ)
        other.send(PINGREQ)
        other.expect(PINGRESP)
        counts.append(len(sessions_of(mqtt)["c"].subscriptions))
        modern.expect(answer + PINGRESP)
        counts.append(len(sessions_of(mqtt)["c"].subscriptions))

    assert 0 < counts[0] < 200 and counts[1] == 200 and 0 < counts[2] < 200 and counts[3] == 0


def test_take_over_between_the_filters_of_a_packet_ends_it(mqtt, modern, slices_of_one):
    modern.send(SUBSCRIBE_200)
    poll_until(lambda: sessions_of(mqtt)["c"].subscriptions)

    mqtt.client(CONNECT_5, CONNACK_5)

    modern.expect(b"\xe0\x01\x8e")
    modern.expect_end()
    for _ in FILTERS:
        poll_the_loop()
    assert sessions_of(mqtt)["c"].subscriptions == {}


def test_filters_are_looked_at_once_for_topics_of_the_broker(mqtt, modern, monkeypatch):
    """Not all that the session has, for each of them."""
    def not_again(_session):
        raise AssertionError("all filters of the session were looked at")

    monkeypatch.setattr(broker_topics, "wants", not_again)

    modern.send(subscribe(b"a/$SYS/b", b"$SYS/broker/#", b"$share/g/$SYS/x"))

    modern.expect(suback(b"\x01\x01\x01"))
    monkeypatch.undo()
    assert list(mqtt.server.broker_topics._sessions) == [sessions_of(mqtt)["c"]]


class NoTime:
    """A SliceClock whose time is over."""

    def __init__(self, **_):
        pass

    def is_over(self):
        return True


def test_values_of_the_broker_are_counted_and_told_in_slices(mqtt, modern, monkeypatch):
    """Of sessions that may be very many."""
    monkeypatch.setattr(broker_topics, "SliceClock", NoTime)
    modern.send(subscribe(b"$SYS/broker/subscriptions/count", b"a", options=0))
    modern.expect(suback(b"\0\0"))
    topics = mqtt.server.broker_topics

    topics._publish()

    polls = 0
    while topics._telling is not None:
        poll_the_loop()
        polls += 1
    assert polls > 10 and topics._timer is not None
    modern.expect(b"\x30\x23\x00\x1f$SYS/broker/subscriptions/count\x002")


def test_subscriptions_are_counted_as_they_come_and_go(mqtt, modern):
    counted = mqtt.broker.vhosts["/"].extras[EXTRA]
    modern.send(subscribe(b"a", b"b/+", b"$share/g/c/+"))
    modern.expect(suback(b"\1\1\1"))
    modern.send(subscribe(b"a", options=2))
    modern.expect(suback(b"\2"))
    assert (counted.subscriptions, counted.shared) == (3, 1)

    modern.send(b"\xa2\x06\0\1\0\0\1a")
    modern.expect(b"\xb0\x04\0\1\0\0")
    assert (counted.subscriptions, counted.shared) == (2, 1)
    counted.end(counted.by_client["c"])

    assert (counted.subscriptions, counted.shared) == (0, 0)


def test_fault_in_counting_costs_one_time(mqtt, modern, monkeypatch):
    modern.send(subscribe(b"$SYS/#"))
    modern.expect(suback(b"\x01"))
    topics = mqtt.server.broker_topics
    with monkeypatch.context() as patch:
        patch.setattr(topics, "_values", None)
        with pytest.raises(TypeError):
            topics._publish()

    assert topics._telling is None and topics._timer is not None


# what is retained

def test_what_is_published_before_suback_comes_once(make_mqtt):
    """By the subscription, which counts from SUBSCRIBE on."""
    mqtt = make_mqtt(manual=True)
    client = mqtt.stranger()
    client.send(KEPT_5)
    poll_until(lambda: mqtt.door.committer.waiting)
    mqtt.door.committer.finish()
    client.expect(CONNACK_5)

    client.send(subscribe(b"t") + b"\x33\x07\x00\x01t\x00\x08\x00b")  # retained, QoS 1
    client.expect(b"\x32\x07\x00\x01t\x00\x01\x00b")
    mqtt.door.committer.finish()
    client.expect(suback(b"\x01"))
    mqtt.door.committer.finish()
    client.expect(b"\x40\x02\x00\x08")

    client.expect_nothing()


@pytest.mark.parametrize("no_local", [False, True])
def test_retained_message_of_its_own_does_not_come_back_with_no_local(mqtt, no_local):
    """[MQTT-3.8.3-3]; what others have published does."""
    other = mqtt.client(CONNECT_5[:15] + b"d" + CONNECT_5[16:], CONNACK_5)
    client = mqtt.client(CONNECT_5, CONNACK_5)
    for one, topic in ((client, b"r/1"), (other, b"r/2")):
        one.send(b"\x33\x09\x00\x03" + topic + b"\x00\x01\x00x")
        one.expect(b"\x40\x02\x00\x01")

    client.send(subscribe(b"r/+", options=4 if no_local else 0))

    client.expect(suback(b"\x00"))
    for topic in ((b"r/2",) if no_local else (b"r/1", b"r/2")):
        client.expect(b"\x31\x07\x00\x03" + topic + b"\x00x")
    client.expect_nothing()
