"""CONNECT and the session it takes up, in octets: present or not, kept how long, taken over, ended."""
import gevent
import pytest

from gomq_py.hub import turns
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.server.connection import Connection
from gomq_py.mqtt.server.login import LoginAttempt
from tests.support.waiting import wait_until
from tests.unit.mqtt.server.conftest import CONNACK_5, CONNACK_311, CONNECT_5, CONNECT_311

ALIASES = b"\x22\x00\x10"  # what CONNACK of MQTT 5 always says: 16 topic aliases
TAKEN_OVER = b"\xe0\x01\x8e"
DELETED = b"\xe0\x28\x98\x26\x1f\x00\x23queue 'mqtt.c' in vhost '/' deleted"


def connect(client_id=b"c", version=5, clean=False, properties=b"", keep_alive_s=60, user=b"guest"):
    """CONNECT with a password."""
    flags = 0xC0 | clean << 1
    body = b"\x00\x04MQTT" + bytes((version, flags)) + keep_alive_s.to_bytes(2, "big")
    if version == 5:
        body += bytes((len(properties),)) + properties
    for text in (client_id, user, b"guest"):
        body += len(text).to_bytes(2, "big") + text
    length = bytes((len(body),)) if len(body) < 128 else bytes((len(body) & 0x7F | 0x80, len(body) >> 7))
    return b"\x10" + length + body


def connack(present=False, properties=b"", code=0, version=5):
    """CONNACK; one of MQTT 5 that refuses has no properties."""
    if version < 5:
        return b"\x20\x02" + bytes((present, code))
    properties = b"" if code else ALIASES + properties
    return b"\x20" + bytes((3 + len(properties), present, code, len(properties))) + properties


def expiry(seconds):
    """The property session expiry interval."""
    return b"\x11" + seconds.to_bytes(4, "big")


def sessions_of(mqtt):
    return mqtt.broker.vhosts["/"].extras[EXTRA].by_client


def leave(mqtt, client, disconnect=b"\xe0\x00"):
    """DISCONNECT, and wait until the server has let go."""
    client.send(disconnect)
    client.expect_end()
    wait_until(lambda: not mqtt.hub.clients, sleep=gevent.sleep)


def test_octets_of_these_tests_are_what_they_say():
    assert connect(clean=True) == CONNECT_5 and connect(version=4, clean=True) == CONNECT_311
    assert connack() == CONNACK_5 and connack(version=4) == CONNACK_311


# sessions

@pytest.mark.parametrize("version, properties, is_kept", [
    (4, b"", True), (3, b"", True), (5, expiry(60), True), (5, b"", False), (5, expiry(0), False)
])
def test_session_is_present_where_it_was_kept(mqtt, version, properties, is_kept):
    if version == 3:
        octets = b"\x10\x1d\x00\x06MQIsdp\x03\xc0\x00\x3c\x00\x01c\x00\x05guest\x00\x05guest"
        is_told = False  # the octet is reserved in MQTT 3.1
    else:
        octets, is_told = connect(version=version, properties=properties), is_kept
    leave(mqtt, mqtt.client(octets, connack(version=version)))

    assert ("c" in sessions_of(mqtt)) == is_kept
    mqtt.client(octets, connack(is_told, version=version))


def test_clean_start_finds_no_session(mqtt):
    leave(mqtt, mqtt.client(connect(properties=expiry(60)), connack()))

    mqtt.client(connect(clean=True, properties=expiry(60)), connack())


def test_disconnect_may_say_how_long_the_session_is_kept(mqtt):
    client = mqtt.client(connect(properties=expiry(60)), connack())

    leave(mqtt, client, b"\xe0\x07\x00\x05" + expiry(7))

    assert sessions_of(mqtt)["c"].expiry_s == 7


@pytest.fixture
def waiting_ends(mqtt):
    """No connection comes to its turn to end: those that wait for one, as functions."""
    ends = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mqtt.hub.slow_turns, "call", ends.append)
        yield ends
    for end in ends:
        end()


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("seconds, present", [(0, False), (7, True)])
def test_connect_right_behind_disconnect_finds_what_it_left(
    mqtt, waiting_ends, monkeypatch, is_busy, seconds, present
):
    client = mqtt.client(connect(properties=expiry(60)), connack())
    session = sessions_of(mqtt)["c"]
    if is_busy:  # the DISCONNECT waits for its turn, too
        monkeypatch.setattr(turns.SlowWalk, "is_over", lambda self: True)

    client.send(b"\xe0\x07\x00\x05" + expiry(seconds))
    wait_until(lambda: waiting_ends, sleep=gevent.sleep)
    left = session.connection is None, session.expiry_s
    mqtt.client(connect(properties=expiry(60)), connack(present))

    assert left == ((False, 60) if is_busy else (True, seconds or 60))
    assert (sessions_of(mqtt)["c"] is session) == present


def test_disconnect_ends_a_clean_session_before_anything_else_is_read(mqtt, waiting_ends):
    client = mqtt.client(connect(version=4, clean=True), connack(version=4))

    client.send(b"\xe0\x00")
    wait_until(lambda: waiting_ends, sleep=gevent.sleep)

    assert not sessions_of(mqtt)


def test_will_of_a_disconnect_that_asks_for_it_is_published_at_once(mqtt, waiting_ends):
    watcher = mqtt.client(connect(b"d"), connack())
    watcher.send(b"\x82\x07\x00\x01\x00\x00\x01w\x00")
    watcher.expect(b"\x90\x04\x00\x01\x00\x00")
    client = mqtt.client(
        b"\x10\x22\x00\x04MQTT\x05\xc6\x00\x3c\x00\x00\x01c\x00\x00\x01w\x00\x00\x00\x05guest\x00\x05guest",
        connack())

    client.send(b"\xe0\x02\x04\x00")

    watcher.expect(b"\x30\x04\x00\x01w\x00")
    wait_until(lambda: waiting_ends, sleep=gevent.sleep)


def test_connect_right_behind_a_closed_socket_finds_what_that_left(mqtt, waiting_ends):
    client = mqtt.client(connect(), connack())

    client.socket.close()
    wait_until(lambda: waiting_ends, sleep=gevent.sleep)

    mqtt.client(connect(), connack())


def test_session_that_is_not_kept_cannot_be_kept_by_disconnect(mqtt):
    client = mqtt.client(connect(), connack())

    client.send(b"\xe0\x07\x00\x05" + expiry(7))

    client.expect(b"\xe0\x01\x82")
    client.expect_end()


def test_session_is_kept_for_as_long_as_the_setting_allows(make_mqtt):
    mqtt = make_mqtt(mqtt_max_session_expiry=3600)

    leave(mqtt, mqtt.client(connect(properties=expiry(0xFFFFFFFF)), connack(properties=expiry(3600))))
    leave(mqtt, mqtt.client(connect(b"d", version=4), connack(version=4)))

    assert [session.expiry_s for session in sessions_of(mqtt).values()] == [3600, 3600]


def test_session_is_durable_with_what_bounds_it(make_mqtt):
    mqtt = make_mqtt(mqtt_max_session_octets=1000, mqtt_session_overflow="reject-publish")

    mqtt.client(connect(properties=expiry(60)), connack())

    queue = sessions_of(mqtt)["c"].queue
    settings = queue.limits.settings
    assert (settings.max_bytes, settings.overflow, bool(queue.durable)) == (1000, "reject-publish", True)


def test_what_all_share_counts_a_token_apart_from_the_local_user_of_its_name(mqtt):
    mqtt.client(connect(), connack())

    assert mqtt.connection().output.account == (("guest", False), "/")


def test_deletion_of_a_user_takes_its_wills(mqtt):
    mqtt.broker.users.set_user("bob", "guest", grants=("/",))
    # 3.1.1 §3.1: as connect(version=4) says it, with the will "w" on the topic "t".
    mqtt.client(
        b"\x10\x1f\0\x04MQTT\x04\xc4\0\x3c\0\x01c\0\x01t\0\x01w\0\x03bob\0\x05guest", connack(version=4))
    wills = mqtt.broker.vhosts["/"].extras[EXTRA].wills
    assert wills.count == 1

    mqtt.broker.users.set_permission("bob", "/", ".*", ".*", ".*")
    assert wills.count == 1
    mqtt.broker.users.delete_user("bob")
    assert wills.count == 0


def test_client_whose_user_has_all_its_sessions_is_told_so(make_mqtt):
    mqtt = make_mqtt(mqtt_max_sessions_per_user=1)
    mqtt.client(connect(properties=expiry(60)), connack())

    mqtt.client(connect(b"d", properties=expiry(60)), connack(code=0x97)).expect_end()
    mqtt.client(connect(b"d", version=4), connack(code=3, version=4)).expect_end()

    mqtt.client(connect(b"d"), connack())
    mqtt.client(connect(properties=expiry(60)), connack(True))
    assert sorted(sessions_of(mqtt)) == ["c", "d"]


@pytest.mark.parametrize("octets, answer, last_word", [
    (connect(properties=expiry(60)), connack(True), TAKEN_OVER),
    (connect(), connack(), TAKEN_OVER),
    (connect(version=4), connack(True, version=4), b""),
    (connect(version=4, clean=True), connack(version=4), b""),
])
def test_second_client_of_an_id_takes_over(mqtt, octets, answer, last_word):
    first = mqtt.client(octets, connack(version=octets[8]))

    mqtt.client(octets, answer)

    first.expect(last_word)
    first.expect_end()
    wait_until(lambda: len(mqtt.hub.clients) == 1, sleep=gevent.sleep)
    assert sessions_of(mqtt)["c"].connection is mqtt.connection()


def test_client_may_take_over_from_itself_while_it_waits_for_the_disk(make_mqtt):
    """Whoever waits for CONNACK and is taken over gets none."""
    mqtt = make_mqtt(manual=True)
    first, second = mqtt.stranger(), mqtt.stranger()
    first.send(connect(properties=expiry(60)))
    wait_until(lambda: "c" in sessions_of(mqtt), sleep=gevent.sleep)
    before = sessions_of(mqtt)["c"].connection

    second.send(connect(properties=expiry(60)))
    wait_until(lambda: sessions_of(mqtt)["c"].connection is not before, sleep=gevent.sleep)
    mqtt.door.committer.finish()

    first.expect_end()
    second.expect(connack(True))


def test_who_is_taken_over_while_it_waits_for_the_disk_waits_no_longer(make_mqtt):
    """Else a device that tries again and again leaves a socket each time while a disk hangs."""
    mqtt = make_mqtt(manual=True)
    tries = [mqtt.stranger() for _ in range(3)]
    for number, client in enumerate(tries):
        client.send(connect(properties=expiry(60)))
        wait_until(lambda: len(mqtt.hub.clients) == 1 and mqtt.connection().session, sleep=gevent.sleep)
        if number:
            tries[number - 1].expect_end()
            tries[number - 1].socket.close()
    assert not sessions_of(mqtt)["c"].is_safe

    assert mqtt.door.committer.finish()

    tries[-1].expect(connack(True))
    assert sessions_of(mqtt)["c"].is_safe


def test_who_is_closed_while_it_waits_for_the_disk_waits_no_longer(make_mqtt):
    mqtt = make_mqtt(manual=True)
    client = mqtt.stranger()
    client.send(connect(properties=expiry(60)))
    wait_until(lambda: "c" in sessions_of(mqtt), sleep=gevent.sleep)

    mqtt.connection().force_close("enough")

    client.expect_end()
    client.socket.close()
    wait_until(lambda: not mqtt.hub.clients, sleep=gevent.sleep)
    assert not sessions_of(mqtt)["c"].is_safe
    mqtt.door.committer.finish()


def test_octets_behind_connect_wait_until_the_session_is_on_disk(make_mqtt):
    mqtt = make_mqtt(manual=True)
    client = mqtt.stranger()

    client.send(connect(properties=expiry(60)) + b"\xc0\x00\xc0\x00")

    wait_until(lambda: "c" in sessions_of(mqtt), sleep=gevent.sleep)
    client.expect_nothing()
    mqtt.door.committer.finish()
    client.expect(connack() + b"\xd0\x00\xd0\x00")


def test_disk_that_refuses_a_session_refuses_its_client(make_mqtt):
    mqtt = make_mqtt(manual=True)
    client = mqtt.stranger()
    client.send(connect(properties=expiry(60)) + b"\xc0\x00")
    wait_until(lambda: "c" in sessions_of(mqtt), sleep=gevent.sleep)

    mqtt.door.committer.finish(OSError(5, "the disk failed"))

    client.expect(connack(code=0x88))
    client.expect_end()
    assert not sessions_of(mqtt)["c"].is_safe


@pytest.mark.parametrize("octets, answer", [
    (connect(), connack()), (connect(b"d", properties=expiry(60)), connack()),
    (connect(version=4, clean=True), connack(version=4)),
    (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c", connack(version=4)),
])
def test_client_whose_password_was_checked_before_comes_in_and_leaves_without_a_greenlet(
    make_mqtt, monkeypatch, octets, answer
):
    mqtt = make_mqtt(mqtt_anonymous_user="guest")
    leave(mqtt, mqtt.client(connect(b"earlier"), connack()))
    client, spawned = mqtt.stranger(), []
    monkeypatch.setattr(gevent, "spawn", lambda work, *more, spawn=gevent.spawn: (
        spawned.append(type(getattr(work, "__self__", None))), spawn(work, *more))[1])

    client.send(octets)
    client.expect(answer)
    client.socket.close()
    wait_until(lambda: not mqtt.hub.clients, sleep=gevent.sleep)

    assert not {Connection, LoginAttempt} & set(spawned)


def test_deleted_session_ends_the_connection(mqtt):
    client = mqtt.client(connect(properties=expiry(60)), connack())

    mqtt.broker.vhosts["/"].delete_queue("mqtt.c")

    client.expect(DELETED)
    client.expect_end()
    assert sessions_of(mqtt) == {}


def test_deleted_queue_of_a_session_that_is_not_kept_ends_the_connection(mqtt):
    client = mqtt.client(connect(), connack())
    client.send(b"\x82\x07\x00\x01\x00\x00\x01a\x01")
    client.expect(b"\x90\x04\x00\x01\x00\x01")

    mqtt.broker.vhosts["/"].delete_queue("mqtt.c", owner=mqtt.connection())

    client.expect(DELETED)
    client.expect_end()


def test_fault_of_its_store_ends_the_connection_and_keeps_the_client_out(mqtt):
    client = mqtt.client(connect(properties=expiry(60)), connack())

    sessions_of(mqtt)["c"].queue.store.fence(OSError(5, "the disk failed"))

    client.expect(b"\xe0\x01\x83")
    client.expect_end()
    again = mqtt.stranger()
    again.send(connect(properties=expiry(60)))
    again.expect(connack(code=0x88))


@pytest.mark.parametrize("version", [4, 5])
def test_identifier_is_released_when_another_store_has_the_place_of_one_that_failed(mqtt, version):
    """A restart before would know it as received, and swallow another message that comes with it."""
    properties = expiry(60) if version == 5 else b""
    client = mqtt.client(connect(version=version, properties=properties), connack(version=version))
    client.send(b"\x34\x08\x00\x01a\x00\x07\x00xx" if version == 5 else b"\x34\x05\x00\x01a\x00\x07")
    client.expect(b"\x50\x03\x00\x07\x10" if version == 5 else b"\x50\x02\x00\x07")
    received = sessions_of(mqtt)["c"].received_ids()

    received.records.store.fence(OSError(5, "the disk failed"))
    client.send(b"\x62\x02\x00\x07")

    client.expect(b"\x70\x02\x00\x07")
    assert not received.has(7)


def test_limit_of_queues_keeps_a_session_from_beginning(mqtt):
    mqtt.broker.vhosts["/"].limits["max-queues"] = 0
    client = mqtt.stranger()

    client.send(connect(properties=expiry(60)))

    client.expect(connack(code=0x97))
    client.expect_end()


# client ids

@pytest.mark.parametrize("version, answer", [(4, connack(version=4, code=2)), (5, connack(code=0x85))])
def test_client_id_is_as_long_as_a_queue_name_lets_it(mqtt, version, answer):
    mqtt.client(connect(250 * b"x", version), connack(version=version))
    client = mqtt.stranger()

    client.send(connect(251 * b"x", version))

    client.expect(answer)
    client.expect_end()


@pytest.mark.parametrize("version, answer", [(4, connack(version=4, code=2)), (5, connack(code=0x85))])
def test_client_id_may_have_to_be_the_users_name(make_mqtt, version, answer):
    mqtt = make_mqtt(mqtt_client_id_validation="username")
    client = mqtt.stranger()

    client.send(connect(version=version))

    client.expect(answer)
    client.expect_end()
    mqtt.client(connect(b"guest", version), connack(version=version))


def test_session_may_be_its_first_users_alone(make_mqtt):
    mqtt = make_mqtt(mqtt_client_id_validation="owner")
    mqtt.broker.users.set_user("eve", "guest", grants=("/",))
    mqtt.client(connect(properties=expiry(60)), connack())
    client = mqtt.stranger()

    client.send(connect(user=b"eve"))

    client.expect(connack(code=0x85))
    client.expect_end()
    assert sessions_of(mqtt)["c"].connection is mqtt.connection()


@pytest.mark.parametrize("version, clean, code", [(5, True, 0x87), (5, False, 0x87), (4, True, 5)])
def test_session_of_another_user_takes_the_right_to_configure_it(make_mqtt, version, clean, code):
    mqtt = make_mqtt()
    mqtt.broker.users.set_user("eve", "guest", grants=("/",))
    mqtt.broker.users.set_permission("eve", "/", "^mqtt[.]d", ".*", ".*")
    mqtt.client(connect(properties=expiry(60)), connack())
    client = mqtt.stranger()

    client.send(connect(version=version, user=b"eve", clean=clean))

    client.expect(connack(version=version, code=code))
    client.expect_end()
    assert sessions_of(mqtt)["c"].connection is mqtt.connection()


# users

@pytest.mark.parametrize("anonymous, version, answer", [
    ("guest", 4, CONNACK_311), ("guest", 5, CONNACK_5), ("nobody", 5, connack(code=0x87)),
    ("nobody", 4, connack(version=4, code=5)),
])
def test_client_without_a_user_name_has_the_rights_of_the_anonymous_user(
    make_mqtt, caplog, anonymous, version, answer
):
    mqtt = make_mqtt(mqtt_anonymous_user=anonymous)
    client = mqtt.stranger()
    body = b"\x00\x04MQTT" + bytes((version,)) + b"\x02\x00\x3c" + b"\x00" * (version == 5) + b"\x00\x01c"

    client.send(b"\x10" + bytes((len(body),)) + body)

    client.expect(answer)
    assert "have the rights of user" in caplog.text
    assert [one.user.name for one in mqtt.hub.clients] == ["guest"] * (anonymous == "guest")


# keep alive

@pytest.mark.parametrize("version, asked_s, has_s", [
    (5, 0, 30), (5, 31, 30), (5, 30, 30), (5, 7, 7), (4, 0, 0)
])
def test_keep_alive_is_the_clients_up_to_the_setting(make_mqtt, version, asked_s, has_s):
    mqtt = make_mqtt(mqtt_max_keep_alive=30)
    told = b"\x13\x00\x1e" if asked_s != has_s else b""

    mqtt.client(connect(version=version, keep_alive_s=asked_s), connack(properties=told, version=version))

    assert mqtt.connection().limits.heartbeat_s == has_s


# what the client takes

def test_client_is_known_by_what_it_takes(make_mqtt):
    mqtt = make_mqtt(mqtt_max_inflight_messages=100)
    properties = b"\x21\x00\x0a\x22\x00\x05\x27\x00\x00\x10\x00\x17\x00"
    maximum = b"\x21\x00\x64"

    mqtt.client(connect(properties=properties), connack(properties=maximum))
    first = mqtt.connection()
    mqtt.client(connect(b"d"), connack(properties=maximum))

    _, second = mqtt.hub.clients
    assert (
        first.receive_maximum, first.topic_alias_maximum, first.maximum_packet_size
    ) == (10, 5, 4096)
    assert (
        second.receive_maximum, second.topic_alias_maximum, second.maximum_packet_size
    ) == (100, 0, 0)
