"""Coming in over MQTT: CONNECT and CONNACK in literal octets,
and no time or memory for strangers who dawdle.
"""
import gevent
import pytest
from gevent.event import Event

from gomq_py.hub import admission
from gomq_py.mqtt.server import login
from tests.support.mqtt_publishing import publish
from tests.support.waiting import in_time, wait_until
from tests.unit.mqtt.server.conftest import CONNACK_5, CONNACK_311, CONNECT_5, CONNECT_311

# CONNECT of 3.1.1 and 5 as conftest has them, without user name and password.
ANONYMOUS_311 = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c"
ANONYMOUS_5 = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01c"
# The last word of a door to a client of 3.1.1 and of 5 that may not come in.
REFUSED_311, WRONG_PASSWORD_5, NOT_AUTHORIZED_5 = (
    b"\x20\x02\x00\x05", b"\x20\x03\x00\x86\x00", b"\x20\x03\x00\x87\x00"
)


def named(user, password=b"guest", version=4):
    """CONNECT of a clean client "c" with this user."""
    body = b"\x00\x04MQTT" + bytes((version,)) + b"\xc2\x00\x3c" + (
        b"\x00" if version == 5 else b""
    ) + b"\x00\x01c"
    for text in (user, password):
        body += len(text).to_bytes(2, "big") + text
    return b"\x10" + bytes((len(body),)) + body


def test_octets_of_these_tests_are_what_they_say():
    assert named(b"guest") == CONNECT_311 and named(b"guest", version=5) == CONNECT_5


@pytest.mark.parametrize("connect, connack, protocol", [
    (b"\x10\x1d\x00\x06MQIsdp\x03\xc2\x00\x3c\x00\x01c\x00\x05guest\x00\x05guest", CONNACK_311, "MQTT 3.1"),
    (CONNECT_311, CONNACK_311, "MQTT 3.1.1"), (CONNECT_5, CONNACK_5, "MQTT 5.0"),
])
def test_client_of_each_version_comes_in(mqtt, connect, connack, protocol):
    mqtt.client(connect, connack)

    connection = mqtt.connection()
    assert (connection.protocol, connection.user.name, connection.vhost.name) == (protocol, "guest", "/")
    assert (connection.client_id, connection.limits.heartbeat_s) == ("c", 60)


def test_connect_may_come_octet_by_octet_and_pings_behind_it_in_one_write(mqtt):
    client = mqtt.stranger()

    for octet in CONNECT_311:
        client.send(bytes((octet,)))
        gevent.sleep(0)
    client.expect(CONNACK_311)
    late = mqtt.stranger()
    late.send(CONNECT_5 + b"\xc0\x00\xc0\x00")

    late.expect(CONNACK_5 + b"\xd0\x00\xd0\x00")


def test_client_of_mqtt_5_without_an_id_is_given_one(mqtt):
    client = mqtt.stranger()
    client.send(b"\x10\x1b\x00\x04MQTT\x05\xc2\x00\x3c\x00\x00\x00\x00\x05guest\x00\x05guest")

    client.expect(b"\x20\x24\x00\x00\x21\x22\x00\x10\x12\x00\x1bgomq-")

    given = client.socket.recv(100)
    assert len(given) == 22 and mqtt.connection().client_id == "gomq-" + given.decode()


def test_client_of_3_1_1_without_an_id_has_one_that_it_is_not_told(mqtt):
    mqtt.client(b"\x10\x1a\x00\x04MQTT\x04\xc2\x00\x3c\x00\x00\x00\x05guest\x00\x05guest")

    assert mqtt.connection().client_id.startswith("gomq-")


@pytest.mark.parametrize("connect, answer", [
    (named(b"guest", b"wrong"), REFUSED_311), (named(b"guest", b"wrong", 5), WRONG_PASSWORD_5),
    (named(b"nobody"), REFUSED_311), (named(b"nobody", version=5), WRONG_PASSWORD_5),
    (ANONYMOUS_311, REFUSED_311), (ANONYMOUS_5, NOT_AUTHORIZED_5),
])
def test_client_that_nobody_knows_is_refused_and_counted(mqtt, connect, answer):
    client = mqtt.stranger()

    client.send(connect)

    client.expect(answer)
    client.expect_end()
    assert not mqtt.hub.clients
    assert mqtt.hub.clients.churn.logins_failed == (connect not in (ANONYMOUS_311, ANONYMOUS_5))


def test_user_name_may_name_the_vhost(mqtt):
    mqtt.broker.create_vhost("plant:7")
    mqtt.broker.users.set_permission("guest", "plant:7", "", "", "")

    mqtt.client(named(b"plant:7:guest"))

    assert (mqtt.connection().vhost.name, mqtt.connection().user.name) == ("plant:7", "guest")


def test_user_whose_name_has_a_colon_comes_in_under_it(mqtt):
    mqtt.broker.create_vhost("plant")
    mqtt.broker.users.set_user("plant:guest", "secret", grants=("/",))

    mqtt.client(named(b"plant:guest", b"secret"))

    assert (mqtt.connection().vhost.name, mqtt.connection().user.name) == ("/", "plant:guest")


@pytest.mark.parametrize("version, answer", [(4, REFUSED_311), (5, NOT_AUTHORIZED_5)])
def test_vhost_without_permissions_is_refused(mqtt, version, answer):
    mqtt.broker.users.set_user("bob", "guest")
    client = mqtt.stranger()

    client.send(named(b"bob", version=version))

    client.expect(answer)
    client.expect_end()


@pytest.mark.parametrize("octets, answer", [
    (b"\xc0\x00", b""),  # PINGREQ before CONNECT
    (b"GET / HTTP/1.1\r\n\r\n", b""),
    (b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x3c\x00\x01c", b"\x20\x02\x00\x01"),  # a version there is not
    (b"\x10\x0d\x00\x04MQTT\x04\x03\x00\x3c\x00\x01c", b""),  # the reserved flag
    (b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x01\x01c", b"\x20\x03\x00\x81\x00"),  # ill-formed properties
    # a session that is kept, without an id
    (b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x3c\x00\x00", b"\x20\x02\x00\x02"),
])
def test_what_is_no_proper_connect_ends_the_connection(mqtt, octets, answer):
    client = mqtt.stranger()

    client.send(octets)

    client.expect(answer)
    client.expect_end()


def test_connect_with_a_large_will_that_drips_takes_no_room_of_bodies_and_ends_with_its_time(make_mqtt):
    """A stranger's will is bounded by max_octets_before_login and the time of a login, not by the budget."""
    settings = {"max_unfinished_bodies": 300_000, "mqtt_login_timeout": in_time(1)}
    mqtt = make_mqtt(**settings)
    will = b"\0\4will" + (60_000).to_bytes(2, "big") + bytes(60_000)
    body = CONNECT_311[2:].replace(b"\xc2", b"\xc6").replace(b"\0\1c", b"\0\1d" + will)
    packet = b"\x10" + bytes((len(body) & 0x7F | 0x80, len(body) >> 7 & 0x7F | 0x80, len(body) >> 14)) + body
    strangers = [mqtt.stranger() for _ in range(20)]
    for stranger in strangers:
        stranger.send(packet[:50_000])
    client = mqtt.client()
    large = publish(b"t", bytes(280_000), 1, 1)

    client.send(large[:-1])
    wait_until(lambda: mqtt.hub.bodies.held, sleep=gevent.sleep)
    assert mqtt.hub.bodies.held < len(large) and not mqtt.connection().stream.paused
    client.send(large[-1:])
    client.expect(b"\x40\x02\x00\x01")

    for stranger in strangers[1:]:
        stranger.expect_end()
    whole = mqtt.stranger()
    whole.send(packet)
    whole.expect(CONNACK_311)


def test_authentication_by_a_method_of_the_clients_is_refused(mqtt):
    client = mqtt.stranger()

    client.send(b"\x10\x16\x00\x04MQTT\x05\x02\x00\x3c\x08\x15\x00\x05SCRAM\x00\x01c")

    client.expect(b"\x20\x03\x00\x8c\x00")
    client.expect_end()


def test_door_has_as_many_connections_as_its_limit(make_mqtt):
    """Those of another door take none of its places."""
    mqtt = make_mqtt(mqtt_max_connections=1)
    mqtt.door.client()
    mqtt.client()
    late, later = mqtt.stranger(), mqtt.stranger()

    late.send(CONNECT_5)
    later.send(CONNECT_311)

    late.expect(b"\x20\x03\x00\x97\x00")
    late.expect_end()
    later.expect(b"\x20\x02\x00\x03")
    later.expect_end()


def test_address_has_as_many_connections_as_its_limit(make_mqtt, caplog):
    mqtt = make_mqtt(mqtt_max_connections_per_address=1)
    mqtt.door.client()
    first = mqtt.client()

    mqtt.stranger().expect_end()

    assert (
        "connection from this machine refused: it has 1 already (mqtt_max_connections_per_address)"
        in caplog.text
    )
    first.send(b"\xc0\x00")
    first.expect(b"\xd0\x00")


def test_more_strangers_than_may_wait_find_no_room(make_mqtt, monkeypatch):
    monkeypatch.setattr(admission, "PATIENCE_S", 3600.0)
    mqtt = make_mqtt(mqtt_max_pending_logins=2)
    mqtt.client()
    strangers = [mqtt.stranger(), mqtt.stranger()]
    wait_until(lambda: mqtt.server.gate.pending_count == 2, sleep=gevent.sleep)

    assert not mqtt.server.gate.has_room("") and mqtt.door.server.gate.has_room("")

    strangers[0].send(CONNECT_311)
    strangers[0].expect(CONNACK_311)
    wait_until(lambda: mqtt.server.gate.has_room(""), sleep=gevent.sleep)


def test_address_whose_clients_send_no_connect_is_waited_for_no_more(make_mqtt, monkeypatch):
    """On b019e894 each login was taken for one that waits for the check of its password."""
    mqtt = make_mqtt(mqtt_max_pending_logins=2)
    gate = mqtt.server.gate
    [mqtt.stranger() for _ in range(2)]
    wait_until(lambda: gate.pending_count == 2, sleep=gevent.sleep)
    monkeypatch.setattr(admission, "PATIENCE_S", 0.0)
    assert gate.has_room("")
    monkeypatch.setattr(admission, "PATIENCE_S", 3600.0)
    mqtt.stranger()
    wait_until(lambda: gate.pending_count == 2, sleep=gevent.sleep)

    assert gate.refuses("") and gate.has_room("192.0.2.1")


def test_login_whose_password_is_being_checked_ends_when_its_socket_is_shut_down(mqtt):
    """Because others want to come in, or the broker stops. It is not read meanwhile, and would see nothing.
    """
    began = Event()
    mqtt.door.broker.logins.login_at_once = lambda *credentials: None
    mqtt.door.broker.logins.login = lambda *credentials: began.set() or Event().wait()
    client = mqtt.stranger()
    client.send(CONNECT_311)
    assert began.wait(in_time(30))

    mqtt.door.hub.admission.close()

    wait_until(lambda: not mqtt.door.hub.admission.count, sleep=gevent.sleep)
    client.expect_end()


@pytest.mark.parametrize("head, answer", [(b"\x10\xff\x7f", b""), (b"\x10\xff\xff\xff\x7f", b"")])
def test_stranger_sends_no_more_octets_than_its_limit(make_mqtt, caplog, head, answer):
    """A packet that would be too large is refused by its head, before the rest has come."""
    mqtt = make_mqtt(mqtt_max_octets_before_login=8192)
    client = mqtt.stranger()

    client.send(head)

    client.expect(answer)
    client.expect_end()
    assert "8192 are accepted" in caplog.text


def test_stranger_who_dawdles_is_dropped(make_mqtt):
    mqtt = make_mqtt()
    mqtt.settings.mqtt_login_timeout = 0.05
    silent, slow = mqtt.stranger(), mqtt.stranger()
    slow.send(CONNECT_311[:-1])

    silent.expect_end()
    slow.expect_end()


def test_nobody_comes_in_while_the_broker_stops(mqtt):
    mqtt.hub.clients.is_closing = True
    late = mqtt.stranger()

    late.expect_end()


def test_client_whose_vhost_goes_while_it_reads_connack_does_not_come_in(mqtt, monkeypatch):
    """It may take its time to read it, when its socket is full."""
    connack = login.Greeting.connack

    def connack_meanwhile(greeting, session_present):
        mqtt.broker.delete_vhost("/", list(mqtt.hub.clients))
        return connack(greeting, session_present)

    monkeypatch.setattr(login.Greeting, "connack", connack_meanwhile)
    client = mqtt.stranger()
    client.send(CONNECT_311)

    client.expect(CONNACK_311)
    client.expect_end()
    assert not mqtt.hub.clients
