"""What a client without the right to is told: chapters 3.3.5 of 3.1.1 and 4.13 of 5.0; our broker only."""
import pytest
import requests

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5
from tests.support.telltale import note_password
from tests.support.waiting import in_time

pytestmark = pytest.mark.mosquitto_differs("has no users here")


@pytest.fixture(scope="module")
def reader(mqtt_server):
    """A user who may read everything and write nothing."""
    note_password("reader-password", "reader")
    api = f"http://127.0.0.1:{mqtt_server.ports['http']}/api"
    for path, body in (
        ("/users/reader", {"password": "reader-password", "tags": ""}),
        ("/permissions/%2F/reader", {"configure": ".*", "write": "^mqtt", "read": ".*"}),
    ):
        answer = requests.put(api + path, json=body, auth=("guest", "guest"), timeout=in_time(30))
        assert answer.status_code in (201, 204), answer.text
    return {"user": "reader", "password": "reader-password"}


@mqtt_3("3.3.5-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_publish_without_the_right_to_ends_the_connection_of_mqtt_3_unacknowledged(connect, reader, qos):
    watcher = connect(4, "acw")
    watcher.ask("82 LL 00 01 00 04 'ac/#' 00", "90 LL 00 01 00")
    wire = connect(4, "ac", **reader)

    wire.send(f"3{2 * qos} LL 00 04 'ac/1' 00 01 'x'")

    wire.expect_end()
    watcher.expect_silence()


@mqtt_5("4.3.3-9", "3.4.2-1", "3.5.2-1")
def test_publish_without_the_right_to_is_answered_with_0x87_and_frees_its_identifier(connect, reader):
    watcher = connect(5, "adw")
    watcher.ask("82 LL 00 01 00 00 04 'ad/#' 00", "90 LL 00 01 00 00")
    wire = connect(5, "ad", **reader)

    for _ in range(2):
        wire.send("32 LL 00 04 'ad/1' 00 01 00 'x'")
        packet = wire.packet()
        assert packet[0] == 0x40 and packet[2:5] == b"\0\1\x87"
        wire.send("34 LL 00 04 'ad/1' 00 02 00 'x'")
        packet = wire.packet()
        assert packet[0] == 0x50 and packet[2:5] == b"\0\2\x87"

    watcher.expect_silence()


@mqtt_3("3.2.2-4", "3.2.2-5")
@mqtt_5("3.1.4-2", "3.2.2-6", "3.2.2-7")
def test_client_without_a_user_name_is_refused(open_socket, version):
    wire = open_socket(version)

    wire.send(f"10 LL 00 04 'MQTT' {version:02x} 02 00 00 {{00}} 00 01 'a'")

    packet = wire.packet()
    assert packet[0] == 0x20 and packet[2] == 0 and packet[3] == (5 if version == 4 else 0x87)
    wire.expect_end()


@mqtt_3("3.1.3-9", "3.2.2-4", "3.2.2-5")
@mqtt_5("3.1.3-8", "3.2.2-7")
def test_client_identifier_that_is_too_long_is_refused(open_socket, version):
    wire = open_socket(version)

    wire.send(
        f"10 LL 00 04 'MQTT' {version:02x} c2 00 00 {{00}} 01 2c 'x'*300 00 05 'guest' 00 05 'guest'")

    packet = wire.packet()
    assert packet[0] == 0x20 and packet[2] == 0 and packet[3] == (2 if version == 4 else 0x85)
    wire.expect_end()
