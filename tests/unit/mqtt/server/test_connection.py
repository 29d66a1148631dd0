"""An MQTT connection from CONNACK to its end, in literal octets."""
import gc
import tracemalloc
from functools import partial

import gevent
import pytest
from gevent import socket

from gomq_py.broker.verbs.token_life import EXPIRED
from gomq_py.hub import turns
from tests.support.mqtt_outbound import mqtt_message
from tests.support.waiting import in_time, wait_until
from tests.unit.mqtt.server.conftest import CONNACK_5, CONNACK_311, CONNECT_5, CONNECT_311

IDLE = 110
PINGREQ, PINGRESP, DISCONNECT = b"\xc0\x00", b"\xd0\x00", b"\xe0\x00"


@pytest.fixture
def modern(mqtt):
    """A client of MQTT 5."""
    return mqtt.client(CONNECT_5, CONNACK_5)


def told(code):
    """The server's DISCONNECT."""
    return b"\xe0\x01" + bytes((code,))


def test_ping_is_answered(mqtt):
    client = mqtt.client()

    client.send(PINGREQ)
    client.expect(PINGRESP)
    client.send(PINGREQ[:1])
    gevent.sleep(0)
    client.send(PINGREQ[1:] + PINGREQ)

    client.expect(PINGRESP + PINGRESP)


def test_client_that_takes_leave_is_let_go_of_without_a_word(mqtt, caplog):
    caplog.set_level("INFO", "gomq_py.mqtt")
    client = mqtt.client()

    client.send(DISCONNECT + PINGREQ)

    client.expect_end()
    client.socket.close()
    wait_until(lambda: not mqtt.hub.clients and not mqtt.hub.admission.count, sleep=gevent.sleep)
    assert "connection unix -> unix: user 'guest' opened vhost '/' as 'c' (MQTT 3.1.1)" in caplog.text
    assert "connection unix -> unix (guest@/) closed: by the client: Normal disconnection" in caplog.text


def test_client_that_writes_on_behind_its_leave_is_not_reset(mqtt):
    client = mqtt.client()

    client.send(DISCONNECT + PINGREQ * 100_000)

    assert client.socket.recv(1000) == b""  # not ConnectionResetError, which expect_end() takes, too
    client.socket.close()
    wait_until(lambda: not mqtt.hub.admission.count, sleep=gevent.sleep)


def test_fault_at_the_end_of_a_client_is_in_the_log_with_its_name_and_the_client_is_let_go_of(
        mqtt, caplog, monkeypatch):
    """Also that of a disk, which is no loss of the connection."""
    client = mqtt.client()
    connection = mqtt.connection()

    def fails(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(connection), "_say_last_word", fails)
    client.send(DISCONNECT)
    client.expect_end()

    assert [(each.levelname, each.getMessage()) for each in caplog.records if each.exc_info] == [
        ("ERROR", f"connection {connection.name}: fault while ending it")]


def test_client_that_is_gone_is_forgotten(mqtt, caplog):
    caplog.set_level("INFO", "gomq_py.mqtt")
    client = mqtt.client()

    client.socket.close()

    wait_until(lambda: not mqtt.hub.clients and not mqtt.hub.admission.count, sleep=gevent.sleep)
    assert "the client closed the socket without DISCONNECT" in caplog.text
    churn = mqtt.hub.clients.churn
    assert (churn.connection_created, churn.connection_closed) == (1, 1)


@pytest.mark.parametrize("octets, code", [
    (CONNECT_5, 0x82),  # a second CONNECT
    (b"\x20\x03\x00\x00\x00", 0x82),  # CONNACK from a client
    (b"\xc1\x00", 0x81),  # PINGREQ with a flag
    (b"\xc0\x01\x00", 0x81),  # PINGREQ with something in it
    (b"\xc0\xff\xff\xff\xff", 0x81),  # a remaining length of five octets
    (b"\x30\xff\xff\xff\x7f", 0x95),  # a packet that would be too large
    (b"\x30\x04\x00\x01tx", 0x81),  # PUBLISH without properties
    (b"\xf0\x00", 0x82),  # AUTH where CONNECT named no method
])
def test_packet_that_is_not_taken_ends_the_connection(mqtt, modern, octets, code):
    modern.send(PINGREQ + octets + PINGREQ)

    modern.expect(PINGRESP + told(code))
    modern.expect_end()


@pytest.mark.parametrize("octets", [CONNECT_311, b"\xc1\x00", b"\xf0\x00", b"\x30\x03\x00\x02t"])
def test_client_of_3_1_1_is_told_nothing_of_what_it_did_wrong(mqtt, octets):
    client = mqtt.client()

    client.send(octets)

    client.expect_end()


def test_client_is_gone_after_six_silent_quarters_of_its_keep_alive(mqtt, modern):
    connection = mqtt.connection()
    assert mqtt.hub.heartbeats._intervals[connection] == 60 / 4

    for _ in range(5):
        connection.check_heartbeat()
    modern.send(PINGREQ)
    modern.expect(PINGRESP)
    for _ in range(6):
        connection.check_heartbeat()  # the first of them notices the ping
    modern.send(PINGREQ)
    modern.expect(PINGRESP)
    for _ in range(7):
        connection.check_heartbeat()

    modern.expect(told(0x8D))
    modern.expect_end()


def test_silence_is_no_fault_of_a_client_that_is_not_read_from(mqtt, modern):
    connection = mqtt.connection()
    hold = connection.stream.pause_reading("the test")

    for _ in range(20):
        connection.check_heartbeat()
    hold.release()

    modern.send(PINGREQ)
    modern.expect(PINGRESP)


def test_keep_alive_of_0_is_no_limit(mqtt):
    mqtt.client(CONNECT_5[:10] + b"\x00\x00" + CONNECT_5[12:], CONNACK_5)

    assert mqtt.connection() not in mqtt.hub.heartbeats._intervals


@pytest.mark.parametrize("reason, code", [
    ("broker forced connection closure with reason 'shutdown'", 0x8B), (EXPIRED, 0xA0),
])
def test_client_of_mqtt_5_is_told_why_the_broker_closes(mqtt, modern, reason, code):
    mqtt.connection().force_close(reason)

    modern.expect(told(code))
    modern.expect_end()


@pytest.mark.parametrize(
    "reason, octets", [("You \0 \udcff", b"You ? ?"), (300 * "x", 256 * b"x")], ids=["ill-formed", "long"])
def test_client_of_mqtt_5_is_told_what_an_operator_says(mqtt, modern, reason, octets):
    mqtt.connection().force_close(reason)

    string = b"\x1f" + len(octets).to_bytes(2, "big") + octets
    lengths = bytes((len(string),)) if len(string) < 128 else b"\x83\x02"
    body = b"\x98" + lengths + string
    modern.expect(b"\xe0" + (bytes((len(body),)) if len(body) < 128 else b"\x86\x02") + body)
    modern.expect_end()


def test_words_of_an_operator_are_no_more_than_the_client_takes(mqtt):
    client = mqtt.client(
        b"\x10\x21\x00\x04MQTT\x05\xc2\x00\x3c\x05\x27\x00\x00\x00\x14\x00\x01c\x00\x05guest\x00\x05guest",
        CONNACK_5)

    mqtt.connection().force_close("more than fits into twenty octets")

    client.expect(told(0x98))
    client.expect_end()


def test_client_of_3_1_1_is_closed_without_a_word(mqtt):
    client = mqtt.client()

    mqtt.connection().force_close("Closed via management plugin")

    client.expect_end()


def test_leave_is_taken_of_clients_of_every_protocol(mqtt, modern):
    leaving = gevent.spawn(mqtt.hub.take_leave)

    modern.expect(told(0x8B))
    modern.expect_end()
    leaving.join()
    assert leaving.successful() and not mqtt.hub.clients


def test_client_that_writes_on_hears_the_last_word(mqtt, modern):
    """Octets that nobody reads would reset the connection, and the last word with it."""
    modern.send(b"\xc1\x00" + PINGREQ * 10_000)

    modern.expect(told(0x81))


def test_pings_without_end_give_others_their_turn(mqtt, modern, monkeypatch):
    """A read of 64 KiB holds 32 000 of them. Here a connection has had its time after two."""
    monkeypatch.setattr(turns, "WALK_S", 0)
    held, wait = [], mqtt.hub.slow_turns.wait

    def noted(stream):
        held.append(stream)
        wait(stream)

    monkeypatch.setattr(mqtt.hub.slow_turns, "wait", noted)

    modern.send(PINGREQ * 20)

    modern.expect(PINGRESP * 20)
    assert len(held) >= 9


def test_clients_that_are_lost_together_end_in_turns(mqtt, monkeypatch):
    """Wills, shared subscriptions, unacknowledged messages: what an end costs, others wait for. Here a poll
    has time for one, or two.
    """
    ended, forget = [], mqtt.hub.clients.forget

    def noted(connection):
        ended.append((gevent.get_hub().loop.iteration, connection.client_id))
        forget(connection)

    names = [f"{number:02}" for number in range(40)]
    connect = CONNECT_311.replace(b"\x10\x1b", b"\x10\x1c").replace(b"\x00\x01c", b"\x00\x02%s")
    clients = [mqtt.client(connect % name.encode()) for name in names]
    monkeypatch.setattr(turns, "WALK_S", 0)
    monkeypatch.setattr(mqtt.hub.clients, "forget", noted)

    for client in clients:
        client.socket.close()
    wait_until(lambda: len(ended) == len(clients), sleep=gevent.sleep)

    polls = [poll for poll, _ in ended]
    assert max(polls.count(poll) for poll in polls) <= 3
    assert sorted(name for _, name in ended) == names


def test_client_that_reads_no_answers_is_dropped(make_mqtt, caplog):
    mqtt = make_mqtt(max_unread_output=4096)
    client = mqtt.client()
    sent = gevent.spawn(_send_until_it_breaks, client)

    wait_until(lambda: not mqtt.hub.clients, sleep=gevent.sleep)

    client.socket.close()
    sent.join()
    assert "the client does not read its answers" in caplog.text


def _send_until_it_breaks(client):
    try:
        while True:
            client.send(PINGREQ * 1000)
    except OSError:
        pass


# nothing behind the last word [MQTT-3.14.4-1]

KICKED = b"\xe0\x09\x98\x07\x1f\x00\x04kick"


# As CONNECT_5, for a session that outlives its connection.
KEPT_5 = b"\x10\x21\0\4MQTT\5\xc0\0\x3c\5\x11\0\0\0\x3c\0\1c\0\5guest\0\5guest"


@pytest.mark.parametrize("asked", [
    b"\x82\x07\0\1\0\0\1t\1", b"\x32\x07\0\1t\0\1\0b",
], ids=["SUBSCRIBE", "PUBLISH"])
def test_answer_that_waits_for_the_disk_does_not_follow_disconnect(make_mqtt, asked):
    mqtt = make_mqtt(manual=True)
    vhost = mqtt.broker.vhosts["/"]
    vhost.declare_queue("kept", durable=True)
    vhost.bindings.bind_queue("kept", "amq.topic", "#")
    client = mqtt.stranger()
    client.send(KEPT_5)
    wait_until(lambda: "mqtt.c" in vhost.queues, sleep=gevent.sleep)
    mqtt.door.committer.finish()
    client.expect(CONNACK_5)
    client.send(asked + PINGREQ)
    client.expect(PINGRESP)

    mqtt.connection().force_close("kick")
    mqtt.door.committer.finish()

    client.expect(KICKED)
    client.expect_end()


def test_message_does_not_follow_disconnect(mqtt, modern):
    modern.send(b"\x82\x07\0\1\0\0\1t\1")
    modern.expect(b"\x90\x04\0\1\0\1")

    mqtt.connection().force_close("kick")
    message = mqtt_message("t", qos=1)
    assert [each.publish(message) for each in mqtt.broker.vhosts["/"].queues.values()] == [1]

    modern.expect(KICKED)
    modern.expect_end()


def test_release_does_not_follow_disconnect(mqtt, modern):
    """A read that begins with PUBREC and ends the connection."""
    modern.send(b"\x82\x07\0\1\0\0\1t\2" + b"\x34\x07\0\1t\0\1\0b")
    modern.expect(b"\x90\x04\0\1\0\2")
    while (octet := modern.socket.recv(1)) != b"\x34":
        assert octet
    modern.expect(b"\x07\0\1t\0\1\0b")

    modern.send(b"\x50\x02\0\1" + CONNECT_5)

    got = b""
    while data := modern.socket.recv(100):
        got += data
    assert got.endswith(told(0x82))


# wills

def with_will(topic):
    """CONNECT of a client of MQTT 5 with a will "gone" of QoS 1."""
    rest = (
        b"\0\4MQTT\5\xce\0\x3c\0\0\1w\0" + len(topic).to_bytes(2, "big") + topic
        + b"\0\4gone\0\5guest\0\5guest")
    return b"\x10" + bytes((len(rest),)) + rest


def test_will_to_a_queue_goes_the_way_of_a_publish_to_it(mqtt):
    queue = mqtt.broker.vhosts["/"].declare_queue("a/b")[0]

    mqtt.client(with_will(b"$default/a.b"), CONNACK_5).socket.close()

    wait_until(lambda: queue.ready_count == 1, sleep=gevent.sleep)


STATE = b"$SYS/broker/connection/edge.to-us/state"


def bridge(level, name):
    """CONNECT of a bridge of Mosquitto: the uppermost bit of the level is set. Its will says that it is gone.
    """
    rest = (
        len(name).to_bytes(2, "big") + name + bytes((level,)) + b"\xe6\0\x3c\0\1b"
        + len(STATE).to_bytes(2, "big") + STATE + b"\0\x010\0\5guest\0\5guest")
    return b"\x10" + bytes((len(rest),)) + rest


@pytest.mark.parametrize("level, name", [(0x83, b"MQIsdp"), (0x84, b"MQTT")])
def test_bridge_gets_nothing_back_and_what_is_retained_as_it_was(mqtt, level, name):
    client, other = mqtt.client(bridge(level, name), CONNACK_311), mqtt.client()
    client.send(b"\x82\x06\0\1\0\1#\0")
    client.expect(b"\x90\x03\0\1\0")

    client.send(b"\x31\x04\0\1ax" + b"\x30\x04\0\1ax\xc0\0")
    client.expect(b"\xd0\0")
    other.send(b"\x31\x04\0\1by\xc0\0")
    other.expect(b"\xd0\0")

    client.expect(b"\x31\x04\0\1by")


def test_bridge_keeps_its_state_among_the_topics_of_the_broker(mqtt):
    watcher = mqtt.client()
    filter_ = b"$SYS/broker/connection/#"
    watcher.send(b"\x82" + bytes((5 + len(filter_),)) + b"\0\1\0" + bytes((len(filter_),)) + filter_ + b"\0")
    watcher.expect(b"\x90\x03\0\1\0")
    client = mqtt.client(bridge(0x84, b"MQTT"), CONNACK_311)
    said = bytes((3 + len(STATE),)) + len(STATE).to_bytes(2, "big") + STATE

    client.send(b"\x31" + said + b"1")
    watcher.expect(b"\x30" + said + b"1")
    client.socket.close()
    watcher.expect(b"\x30" + said + b"0")


@pytest.mark.parametrize("topic", [
    b"$SYS/broker/connection/state", b"$SYS/broker/connection//state", b"$SYS/broker/connection/a/b/state",
    b"$SYS/broker/connection/a/state/", b"$SYS/broker/connection/a/version", b"$SYS/broker/version",
])
def test_other_topics_of_the_broker_stay_its_own(mqtt, topic):
    client = mqtt.client(b"\x10" + CONNECT_5[1:], CONNACK_5)

    client.send(
        b"\x33" + bytes((6 + len(topic),)) + len(topic).to_bytes(2, "big") + topic + b"\0\1\0x")

    client.expect(b"\x40\x03\0\1\x87")


@pytest.mark.parametrize("version, connack", [(4, b"\x20\x02\x00\x03"), (5, b"\x20\x03\x00\x97\x00")])
def test_will_above_the_largest_size_is_refused(make_mqtt, version, connack):
    mqtt = make_mqtt(max_message_size=3)
    client = mqtt.stranger()
    properties = b"\0" if version == 5 else b""
    rest = (
        b"\0\4MQTT" + bytes((version,)) + b"\xce\0\x3c" + properties + b"\0\1w" + properties
        + b"\0\1t\0\4gone\0\5guest\0\5guest")

    client.send(b"\x10" + bytes((len(rest),)) + rest)

    client.expect(connack)
    client.expect_end()


def test_will_waits_for_an_exchange_that_is_not_there(make_mqtt, caplog):
    mqtt = make_mqtt()
    vhost = mqtt.broker.vhosts["/"]
    vhost.extras["mqtt"].take_from("devices")
    mqtt.client(with_will(b"t"), CONNACK_5).socket.close()
    wait_until(lambda: "wait for their exchange" in caplog.text, sleep=gevent.sleep)
    queue = vhost.declare_queue("q")[0]

    vhost.declare_exchange("devices", "topic")
    vhost.bindings.bind_queue("q", "devices", "#")

    wait_until(lambda: queue.ready_count == 1, sleep=gevent.sleep)


# what an idle client costs

def test_client_is_served_without_a_greenlet(mqtt):
    """An idle one would hold a stack and a chunk of frames, which are more than all the rest."""
    ours, theirs = socket.socketpair()
    ours.sendall(CONNECT_311)
    gone = []

    when_gone = gevent.spawn(mqtt.server.handle, theirs, "").get(timeout=in_time(10))
    when_gone(partial(gone.append, True))

    assert ours.recv(100) == CONNACK_311
    ours.sendall(PINGREQ)
    assert ours.recv(100) == PINGRESP
    assert not gone and len(mqtt.hub.clients) == 1
    ours.close()
    wait_until(lambda: gone, sleep=gevent.sleep)
    assert gone == [True] and not mqtt.hub.clients
    theirs.close()


def test_idle_clients_are_small(mqtt):
    """Octets of Python's that each costs, with a clean session and a subscription: 6.1 KiB compiled, 6.2
    interpreted.
    """
    pairs = [socket.socketpair() for _ in range(IDLE)]

    def connect(number):
        ours, theirs = pairs[number]
        ours.sendall(CONNECT_311.replace(b"\x1b", b"\x1e", 1).replace(b"\0\1c", b"\0\4%04d" % number))
        when_gone = gevent.spawn(mqtt.server.handle, theirs, "").get(timeout=in_time(10))
        when_gone(theirs.close)
        ours.sendall(b"\x82\x0b\0\1\0\6a/%04d\0" % number)
        assert ours.recv(4, socket.MSG_WAITALL) == CONNACK_311
        assert ours.recv(5, socket.MSG_WAITALL) == b"\x90\3\0\1\0"

    for number in range(10):  # what is made once
        connect(number)
    tracemalloc.start()
    try:
        before = _traced_octets()
        for number in range(10, IDLE):
            connect(number)
        each = (_traced_octets() - before) / (IDLE - 10)
    finally:
        tracemalloc.stop()

    assert each <= 8 * 1024
    for ours, _ in pairs:
        ours.close()
    wait_until(lambda: not mqtt.hub.clients, sleep=gevent.sleep)


def _traced_octets():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
