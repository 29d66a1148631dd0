"""MQTT's ports at a real broker, with paho: TLS and host names, users by certificate, the unix socket, what a
proxy announces, and a port that is taken.
"""
import socket
import ssl
import threading
from contextlib import contextmanager

import paho.mqtt.client as paho
import pytest
import requests
import trustme

from gomq_py import Broker
from gomq_py.client.mqtt import MQTTClient
from tests.support import certificates
from tests.support.waiting import in_time, wait_until
from tests.support.websockets import BINARY
from tests.support.websockets import Client as WebSocket

# 3.1.1 §3.1: client id "p", clean session, keep alive 60 s, guest:guest.
CONNECT = bytes.fromhex("101b 0004 4d515454 04 c2 003c 0001 70 0005 6775657374 0005 6775657374")
CONNACK, NOT_AUTHORIZED = b"\x20\x02\x00\x00", b"\x20\x02\x00\x05"
DISCONNECT = b"\xe0\x00"
FAR, NEAR = (
    b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 1883\r\n", b"PROXY TCP4 127.0.0.1 127.0.0.1 56324 1883\r\n"
)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def server(tmp_path, authority):
    """The broker's own files."""
    return certificates.make(tmp_path / "server", authority=authority)


@pytest.fixture
def start(broker_process, tmp_path):
    """A function from the text of an INI file to a running broker with a management API."""

    def start_(text="", **options):
        config = tmp_path / "gomq.ini"
        config.write_text(text)
        return broker_process(config=config, http_port=0, **options).start()

    return start_


def context(files, identity=None):
    """A client's context that trusts the authority of ``files``, and shows that of ``identity``."""
    made = ssl.create_default_context(cafile=files.authority)
    made.check_hostname = False
    if identity is not None:
        made.load_cert_chain(identity.certificate, identity.key)
    return made


@contextmanager
def client(host, port=1883, tls=None, user="guest", **options):
    """A client of paho's that has been answered, and the answer."""
    answered, answers = threading.Event(), []
    made = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="p", protocol=paho.MQTTv5, **options)
    if user:
        made.username_pw_set(user, user)
    if tls is not None:
        made.tls_set_context(tls)

    def on_connect(_client, _data, _flags, reason, _properties):
        answers.append(str(reason))
        answered.set()

    made.on_connect = on_connect
    made.connect(host, port)
    made.loop_start()
    try:
        assert answered.wait(in_time(30))
        yield answers[0]
    finally:
        made.disconnect()
        made.loop_stop()


def shown(broker):
    """The one connection, as the management API has it."""
    connections = []

    def look():
        connections[:] = requests.get(
            f"http://127.0.0.1:{broker.ports['http']}/api/connections", auth=("guest", "guest"),
            timeout=in_time(60),
        ).json()
        return connections

    wait_until(look)
    return connections[0]


def test_paho_connects_over_tls(start, server):
    broker = start(mqtts_port=0, tls_cert=server.certificate, tls_key=server.key)

    with client("localhost", broker.ports["mqtts"], context(server)) as reason:
        assert reason == "Success"
        connection = shown(broker)

    assert (connection["protocol"], connection["ssl"]) == ("MQTT 5.0", True)
    assert "mqtt" not in broker.ports


def test_leave_over_tls_is_taken_with_its_notice_in_both_directions(start, server):
    broker = start(mqtts_port=0, tls_cert=server.certificate, tls_key=server.key)
    with (
        socket.create_connection(("127.0.0.1", broker.ports["mqtts"]), timeout=in_time(60)) as plain,
        context(server).wrap_socket(plain, suppress_ragged_eofs=False) as encrypted,
    ):
        encrypted.sendall(CONNECT)
        assert encrypted.recv(100) == CONNACK

        encrypted.sendall(DISCONNECT)

        below = encrypted.unwrap()  # raises SSLEOFError where no notice comes back
        assert below.recv(100) == b""


def test_host_names_have_certificates_of_their_own(start, server, authority, tmp_path):
    devices = certificates.make(tmp_path / "devices", "devices.example.com", authority=authority)
    other = certificates.make(tmp_path / "other", "other.example.com", authority=authority)
    broker = start(
        f"[sni:devices.example.com]\ntls_cert = {other.certificate}\ntls_key = {other.key}\n"
        f"mqtt_tls_cert = {devices.certificate}\nmqtt_tls_key = {devices.key}\n",
        mqtts_port=0, amqps_port=0, tls_cert=server.certificate, tls_key=server.key,
    )
    asked = {}
    for door in ("mqtts", "amqps"):
        with (
            socket.create_connection(("127.0.0.1", broker.ports[door]), timeout=in_time(60)) as plain,
            context(server).wrap_socket(plain, server_hostname="devices.example.com") as encrypted,
        ):
            asked[door] = encrypted.getpeercert()["subjectAltName"]

    assert asked == {
        "mqtts": (("DNS", "devices.example.com"),), "amqps": (("DNS", "other.example.com"),)
    }


def test_certificate_logs_its_user_in_where_connect_names_none(start, server, authority, tmp_path):
    broker = start(
        f"[main]\ntls_verify_peer = true\ntls_ca_cert = {server.authority}\n"
        "ssl_cert_login_from = common_name\n",
        mqtts_port=0, tls_cert=server.certificate, tls_key=server.key,
    )
    port = broker.ports["mqtts"]
    api = f"http://127.0.0.1:{broker.ports['http']}/api"
    identity = certificates.make_client(tmp_path / "jane", authority, "x.example.com", common_name="jane")

    with client("localhost", port, context(server, identity), user=None) as reason:
        assert reason == "Bad user name or password"
    requests.put(
        f"{api}/users/jane", json={"password_hash": "", "tags": ""}, auth=("guest", "guest"),
        timeout=in_time(60),
    ).raise_for_status()
    requests.put(
        f"{api}/permissions/%2F/jane", json={"configure": ".*", "write": ".*", "read": ".*"},
        auth=("guest", "guest"), timeout=in_time(60),
    ).raise_for_status()

    with client("localhost", port, context(server, identity), user=None) as reason:
        assert (reason, shown(broker)["user"]) == ("Success", "jane")
        assert shown(broker)["auth_mechanism"] == "EXTERNAL"
    with (
        pytest.raises(ssl.SSLError), socket.create_connection(("127.0.0.1", port)) as plain,
        context(server).wrap_socket(plain) as encrypted,
    ):
        encrypted.sendall(CONNECT)
        encrypted.recv(1)


def test_unix_socket_has_its_mode_and_its_own_names(start, tmp_path):
    broker = start(f"[mqtt]\nunix_path = {tmp_path / 'mqtt.sock'}\nunix_mode = 600\n")

    with client(str(tmp_path / "mqtt.sock"), transport="unix") as reason:
        assert reason == "Success"
        assert shown(broker)["name"].startswith("unix:")
    assert (tmp_path / "mqtt.sock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("header, answer", [(FAR, NOT_AUTHORIZED), (NEAR, CONNACK)])
def test_address_that_a_proxy_announces_is_the_connections(start, header, answer):
    """guest may come from this machine only."""
    broker = start("[amqp]\ntcp_proxy_protocol = true\n", mqtt_port=0)

    with socket.create_connection(("127.0.0.1", broker.ports["mqtt"]), timeout=in_time(60)) as connection:
        connection.sendall(header + CONNECT)
        assert connection.recv(100) == answer
        if answer == CONNACK:
            assert shown(broker)["peer_port"] == 56324


def test_trusted_proxy_that_sends_no_header_is_refused(start):
    broker = start("[amqp]\ntcp_proxy_protocol = true\n", mqtt_port=0)

    with socket.create_connection(("127.0.0.1", broker.ports["mqtt"]), timeout=in_time(60)) as connection:
        connection.sendall(CONNECT)
        try:
            assert connection.recv(100) == b""
        except ConnectionResetError:
            pass
    broker.wait_for_log("mqtt connection from 127.0.0.1:[0-9]+ refused: PROXY protocol")


def test_header_from_nobody_who_is_trusted_is_no_mqtt(start):
    broker = start(mqtt_port=0)

    with socket.create_connection(("127.0.0.1", broker.ports["mqtt"]), timeout=in_time(60)) as connection:
        connection.sendall(NEAR + CONNECT)
        try:
            assert connection.recv(100) == b""
        except ConnectionResetError:
            pass


def test_port_that_is_taken_ends_the_boot_where_somebody_set_it(broker_process, tmp_path):
    """The default one, 1883, is taken by this test, or by somebody else before it. No other test takes it:
    what is taken in one run at once would be free again when a broker looks.
    """
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 1883))
            taken.listen()
        except OSError:
            pass
        asked = broker_process(mqtt_port=1883)
        asked.spawn()
        assert asked.wait() != 0
        assert "port 1883 on 127.0.0.1 is in use" in asked.log_text

        broker = broker_process()
        del broker._options["mqtt_port"]
        broker.start()
        broker.wait_for_log("going on without mqtt port: port 1883 on 127.0.0.1 is in use")
        assert "mqtt" not in broker.ports


def test_embedded_broker_says_where_its_mqtt_is():
    with Broker(mqtt_port=0) as broker:
        url = broker.mqtt_url
        assert url == f"mqtt://guest:guest@127.0.0.1:{broker.addresses['mqtt'][1]}"
        MQTTClient(url).close()
        MQTTClient(broker.url(protocol="mqtt", vhost="/")).close()
        assert broker.url("a b", "c", "v/w", "mqtt").endswith("/v%2Fw")
    with Broker() as broker, pytest.raises(RuntimeError, match="mqtt_port is -1"):
        broker.mqtt_url  # noqa: B018 - it raises


def put(broker, path, value):
    requests.put(
        f"{broker.http_url}/api/{path}", json=value, auth=("guest", "guest"), timeout=in_time(60)
    ).raise_for_status()


@pytest.mark.parametrize("mapping, path, vhost", [
    ({"PORT": "shop"}, "", "shop"), ({"1": "shop"}, "", "/"), ({"PORT": "shop"}, "/%2F", "/"),
    ({"PORT": 7}, "", "/"), (["PORT"], "", "/"), ("shop", "", "/"),
])
def test_port_leads_to_the_vhost_that_the_map_names(tmp_path, mapping, path, vhost):
    """RabbitMQ's global parameter, which may hold anything; who names a vhost gets that one."""
    with Broker(tmp_path, mqtt_port=0, http_port=0) as broker:
        put(broker, "vhosts/shop", {})
        put(broker, "permissions/shop/guest", {"configure": ".*", "write": ".*", "read": ".*"})
        port = broker.addresses["mqtt"][1]
        if isinstance(mapping, dict):
            mapping = {key.replace("PORT", str(port)): value for key, value in mapping.items()}
        put(broker, "global-parameters/mqtt_port_to_vhost_mapping", {"value": mapping})
        client = MQTTClient(f"mqtt://guest:guest@127.0.0.1:{port}{path}")

        assert broker.call(lambda launcher: [one.vhost.name for one in launcher.hub.clients]) == [vhost]
        client.close()


def test_certificate_leads_to_the_vhost_that_the_map_names(start, server, authority, tmp_path):
    broker = start(
        f"[main]\ntls_verify_peer = true\ntls_ca_cert = {server.authority}\n"
        "ssl_cert_login_from = common_name\n",
        mqtts_port=0, tls_cert=server.certificate, tls_key=server.key,
    )
    api = f"http://127.0.0.1:{broker.ports['http']}/api"
    for path, value in (
        ("vhosts/shop", {}), ("users/jane", {"password_hash": "", "tags": ""}),
        ("permissions/shop/jane", {"configure": ".*", "write": ".*", "read": ".*"}),
        ("global-parameters/mqtt_default_vhosts", {"value": {"jane": "shop"}}),
        ("global-parameters/mqtt_port_to_vhost_mapping", {"value": {str(broker.ports["mqtts"]): "none"}}),
    ):
        requests.put(
            f"{api}/{path}", json=value, auth=("guest", "guest"), timeout=in_time(60)).raise_for_status()
    identity = certificates.make_client(tmp_path / "jane", authority, "x.example.com", common_name="jane")

    with client("localhost", broker.ports["mqtts"], context(server, identity), user=None) as reason:
        assert (reason, shown(broker)["vhost"]) == ("Success", "shop")


# MQTT 5: the same CONNECT, and PUBLISH of 1000 and of 1001 octets to topic "t" at QoS 1.
CONNECT_5 = bytes.fromhex("101c 0004 4d515454 05 c2 003c 00 0001 70 0005 6775657374 0005 6775657374")
FITTING = bytes.fromhex("32e507 0001 74 0001 00") + bytes(991)
TOO_LARGE_HEAD = bytes.fromhex("32e607 0001 74 0001 00")


@contextmanager
def octets_to(broker, door, server, path):
    """(send, read(count)) of octets of MQTT to a door of a broker."""
    if door == "websocket":
        with WebSocket(broker.addresses["http"][1], "/mqtt") as client:
            kept = bytearray()

            def read(count):
                while len(kept) < count:
                    kind, payload = client.next_frame()
                    assert kind == BINARY
                    kept.extend(payload)
                found = bytes(kept[:count])
                del kept[:count]
                return found

            yield client.send, read
        return
    if door == "unix":
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(in_time(30))
        made.connect(path)
    else:
        name = "mqtts" if door == "tls" else "mqtt"
        made = socket.create_connection(("127.0.0.1", broker.addresses[name][1]), in_time(30))
        if door == "tls":
            made = context(server).wrap_socket(made)
    with made:
        file = made.makefile("rb")
        yield made.sendall, file.read


@pytest.mark.parametrize("door", ["tcp", "tls", "unix", "websocket"])
def test_largest_packet_is_told_and_held_to_at_every_door(tmp_path, server, door):
    path = str(tmp_path / "m")
    with Broker(
        mqtt_port=0, mqtts_port=0, http_port=0, mqtt_unix_path=path, tls_cert=str(server.certificate),
        tls_key=str(server.key), mqtt_max_packet_size=1000,
    ) as broker, octets_to(broker, door, server, path) as (send, read):
        send(CONNECT_5)
        assert read(13) == bytes.fromhex("200b 0000 08 220010 27000003e8")

        send(FITTING)
        assert read(5) == bytes.fromhex("4003 0001 10")
        send(TOO_LARGE_HEAD)

        assert read(3) == bytes.fromhex("e001 95")


@pytest.mark.parametrize("size, is_let_in", [(30, True), (29, False)])
def test_packet_that_logs_in_is_held_to_the_largest_size(tmp_path, server, size, is_let_in):
    with Broker(mqtt_port=0, mqtt_max_packet_size=size) as broker:
        with octets_to(broker, "tcp", server, None) as (send, read):
            send(CONNECT_5)

            assert (read(4)[3:] == b"\0") == is_let_in
