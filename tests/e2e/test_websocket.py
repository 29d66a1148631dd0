"""MQTT and AMQP over WebSocket on the management ports: paho's own transport, pika through a relay that cuts
its octets into odd frames, and handshakes octet by octet.
"""
import ctypes
import json
import os
import socket
import ssl
import struct
import threading
from contextlib import contextmanager
from functools import partial

import paho.mqtt.client as paho
import pika
import pytest
import requests

from gomq_py import Broker
from gomq_py.config.kinds import Keepalive
from gomq_py.mqtt.wire.frames import encode_publish
from gomq_py.net import openssl
from tests.support import certificates
from tests.support.waiting import in_time, wait_until
from tests.support.websockets import (
    ACCEPT, BINARY, CLOSE, KEY, PING, PONG, TEXT, Client, Relay, frame, request,
)

# 3.1.1 §3.1: client id "p", clean session, keep alive 60 s, guest:guest.
CONNECT = bytes.fromhex("101b 0004 4d515454 04 c2 003c 0001 70 0005 6775657374 0005 6775657374")
CONNACK, PUBACK = b"\x20\x02\0\0", b"\x40\x02\0\1"
PINGREQ, PINGRESP, DISCONNECT = b"\xc0\0", b"\xd0\0", b"\xe0\0"
AMQP_HEADER, AMQP_START = b"AMQP\0\0\x09\x01", b"\x01\0\0"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def broker(files):
    with Broker(
        http_port=0, https_port=0, tls_cert=str(files.certificate), tls_key=str(files.key),
        websocket_origins=["https://app.example.com"],
    ) as broker:
        yield broker


@pytest.fixture
def port(broker):
    yield broker.addresses["http"][1]
    wait_until(lambda: not count(broker))


def count(broker):
    return broker.call(lambda launcher: launcher.hub.admission.count)


def answer(port, octets):
    """All that comes back to a request that is refused, until the socket ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=in_time(60)) as connection:
        connection.sendall(octets)
        back = b""
        while more := connection.recv(65536):
            back += more
    return back


@contextmanager
def paho_client(port, version, path, tls=None):
    answered, reasons = threading.Event(), []
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, client_id="p", protocol=version, transport="websockets")
    client.username_pw_set("guest", "guest")
    client.ws_set_options(path=path)
    if tls is not None:
        client.tls_set_context(tls)

    def on_connect(_client, _data, _flags, reason, _properties):
        reasons.append(str(reason))
        answered.set()

    client.on_connect = on_connect
    client.connect("localhost", port, keepalive=60)
    client.loop_start()
    assert answered.wait(in_time(30))
    yield reasons[0]
    client.disconnect()
    client.loop_stop()


# what all clients share

def held(broker):
    return broker.call(lambda launcher: launcher.hub.bodies.held)


def test_frames_that_drip_keep_no_message_of_another_user_waiting():
    """Octets of a frame that has not come whole count as those of a message over TCP, and get as far."""
    packet = encode_publish(4, 2, b"t", 1, b"", bytes(700_000))
    with Broker(http_port=0, max_unfinished_bodies=1024 * 1024) as broker:
        for path, about in (("users/other", {"password": "guest", "tags": ""}), ("permissions/%2F/other", {
                "configure": ".*", "write": ".*", "read": ".*"})):
            requests.put(
                f"{broker.http_url}/api/{path}", json=about, auth=("guest", "guest"), timeout=in_time(60))

        def client(number, user=b"guest"):
            client = Client(broker.addresses["http"][1], "/mqtt", "mqtt")
            client.send(CONNECT.replace(b"\1p", b"\1%d" % number).replace(b"\5guest", b"\5" + user, 1))
            assert client.next_frame()[1] == CONNACK
            return client

        dripping = [client(number) for number in range(2)]
        for each in dripping:
            each.socket.sendall(frame(packet)[:500_000])
        wait_until(lambda: held(broker) > 999_900)

        with client(2, b"other") as other:
            other.send(encode_publish(4, 2, b"t", 1, b"", bytes(300_000)))
            assert other.next_frame()[1] == PUBACK
        assert held(broker) > 999_900, "nobody had to give way"

        dripping[1].socket.close()
        wait_until(lambda: held(broker) < 600_000)
        with dripping[0]:
            dripping[0].socket.sendall(frame(packet)[500_000:])
            assert dripping[0].next_frame()[1] == PUBACK
        wait_until(lambda: not held(broker))


# what is spoken over it

@pytest.mark.parametrize("version", [paho.MQTTv31, paho.MQTTv311, paho.MQTTv5])
def test_paho_speaks_mqtt(broker, port, version):
    with paho_client(port, version, "/any/path") as reason:
        assert reason == "Success"
        (shown,) = requests.get(
            f"{broker.http_url}/api/connections", auth=("guest", "guest"), timeout=in_time(60)
        ).json()
        assert shown["protocol"].startswith("MQTT") and shown["ssl"] is False


def test_paho_speaks_mqtt_over_tls(broker, port, files):
    context = ssl.create_default_context(cafile=files.authority)
    with paho_client(broker.addresses["https"][1], paho.MQTTv5, "/mqtt", context) as reason:
        assert reason == "Success"
        (shown,) = requests.get(
            f"{broker.http_url}/api/connections", auth=("guest", "guest"), timeout=in_time(60)
        ).json()
        assert shown["ssl"] is True and shown["ssl_protocol"].startswith("TLS")


def test_client_over_tls_may_change_its_keys(broker, port, files):
    """TLS 1.3 (RFC 8446 §4.6.3); whether or not the client asks for new keys of the broker's, too."""
    context = ssl.create_default_context(cafile=files.authority)
    wrap = partial(context.wrap_socket, server_hostname="localhost")
    with Client(broker.addresses["https"][1], "/mqtt", "mqtt", wrap) as client:
        client.send(CONNECT)
        assert client.next_frame()[1] == CONNACK

        for asks in (0, 1):
            library, connection = openssl._library(), openssl._word(client.socket._sslobj, openssl.LIBRARY_AT)
            for _ in range(20):
                assert library.SSL_key_update(ctypes.c_void_p(connection), asks) == 1
                client.send(PINGREQ)
            assert [client.next_frame()[1] for _ in range(20)] == [PINGRESP] * 20


@pytest.mark.parametrize("piece, frames", [(65536, 1), (1000, 3), (7, 2)])
def test_pika_speaks_amqp(broker, port, piece, frames):
    """Messages over the large-message bound, both ways, in frames of all sizes."""
    bodies = [b"x", b"y" * 5000, bytes(range(256)) * (2000 if piece > 100 else 40)]
    with Relay(port, "amqp", piece, frames) as relay:
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", relay.port, socket_timeout=in_time(60),
                                      blocked_connection_timeout=in_time(60)))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("over-websocket", exclusive=True)
        for body in bodies:
            channel.basic_publish("", "over-websocket", body)
        got = [next(channel.consume("over-websocket", auto_ack=True))[2] for _ in bodies]
        channel.cancel()
        connection.close()

    assert got == bodies


def test_ten_thousand_messages_go_both_ways_over_one_websocket(broker, port):
    """A backlog larger than what the socket takes at once."""
    body = b"z" * 1000
    with Relay(port, "amqp") as relay:
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", relay.port, socket_timeout=in_time(60)))
        channel = connection.channel()
        channel.queue_declare("many", exclusive=True)
        for _ in range(10_000):
            channel.basic_publish("", "many", body)
        got = 0
        for _, _, received in channel.consume("many", auto_ack=True, inactivity_timeout=in_time(60)):
            assert received == body
            got += 1
            if got == 10_000:
                break
        connection.close()

    assert got == 10_000


@pytest.mark.parametrize("path, subprotocol, is_mqtt", [
    ("/", "mqtt", True), ("/", "mqttv3.1", True), ("/mqtt", "", True), ("/ws/mqtt?x=1", "", True),
    ("/", "", False), ("/ws/amqp", "", False), ("/mqtt", "amqp", False), ("/mqtt", "chat", True),
    ("/", "chat, amqp0.9.1", False), ("/mqtt/x", "", False),
])
def test_subprotocol_decides_and_else_the_path(port, path, subprotocol, is_mqtt):
    with Client(port, path, subprotocol) as client:
        assert client.status == "HTTP/1.1 101 Switching Protocols"
        known = [name for name in subprotocol.split(", ") if name.startswith(("mqtt", "amqp"))]
        assert client.fields.get("sec-websocket-protocol") == (known[0] if known else None)
        client.send(CONNECT if is_mqtt else AMQP_HEADER)
        opcode, payload = client.next_frame()

    assert (opcode, payload[:3]) == (2, CONNACK[:3] if is_mqtt else AMQP_START)


def test_mqtt_in_frames_of_an_octet_with_pings_between(port):
    """[MQTT-6.0.0-2]: a frame may hold part of a packet, or several."""
    with Client(port, subprotocol="mqtt") as client:
        for octet in CONNECT:
            client.send(bytes([octet]))
            client.send(b"", opcode=PING)
        answers = [client.next_frame() for _ in range(len(CONNECT) + 1)]
        assert sorted(answers) == sorted([(2, CONNACK), *[(PONG, b"")] * len(CONNECT)])
        client.send(PINGREQ * 3 + DISCONNECT)

        assert client.next_payload(6) == PINGRESP * 3
        assert client.closed() == 1000


def test_packets_behind_connect_in_its_frame_are_served(port):
    with Client(port, subprotocol="mqtt") as client:
        client.send(CONNECT + PINGREQ)

        assert client.next_payload(6) == CONNACK + PINGRESP


def test_frames_that_came_with_the_request_are_served(port):
    with socket.create_connection(("127.0.0.1", port), timeout=in_time(60)) as connection:
        connection.sendall(request(subprotocol="mqtt") + frame(CONNECT) + frame(PINGREQ))
        back = b""
        while not back.endswith(PINGRESP):
            back += connection.recv(65536)

    accepted, _, frames = back.partition(b"\r\n\r\n")
    assert ACCEPT in accepted
    assert frames in (  # in one message or in two
        b"\x82\x06" + CONNACK + PINGRESP, b"\x82\x04" + CONNACK + b"\x82\x02" + PINGRESP)


def test_text_ends_the_connection(port):
    """[MQTT-6.0.0-1]: other than binary frames, the connection is closed."""
    with Client(port, subprotocol="mqtt") as client:
        client.send(CONNECT)
        assert client.next_payload(4) == CONNACK
        client.send(b"text", opcode=TEXT)

        assert client.closed() == 1003


def test_packet_that_is_none_closes_with_what_mqtt_says_and_a_close(port):
    with Client(port, subprotocol="mqtt") as client:
        client.send(CONNECT)
        assert client.next_payload(4) == CONNACK
        client.send(b"\x00\x00")

        assert client.closed() == 1000


# who may

@pytest.mark.parametrize("change, status, shown", [
    ({"Sec_WebSocket_Version": "8"}, b"426 Upgrade Required", b"sec-websocket-version: 13"),
    ({"Sec_WebSocket_Version": None}, b"400 Bad Request", b""),
    ({"Sec_WebSocket_Key": None}, b"400 Bad Request", b""),
    ({"Connection": "keep-alive"}, b"400 Bad Request", b""),
    ({"Content_Length": "5"}, b"400 Bad Request", b"has no body"),
    ({"Transfer_Encoding": "chunked"}, b"400 Bad Request", b"has no body"),
    ({"Origin": "http://evil.example.com"}, b"403 Forbidden", b"websocket_origins"),
    ({"Origin": "null"}, b"403 Forbidden", b"websocket_origins"),
    ({"Origin": "http://[", "Host": "["}, b"403 Forbidden", b"websocket_origins"),
    ({"Origin": ""}, b"403 Forbidden", b"websocket_origins"),
])
def test_request_that_is_refused_says_why_and_ends(port, change, status, shown):
    back = answer(port, request(subprotocol="mqtt", **change) + CONNECT)

    assert back.startswith(b"HTTP/1.1 " + status), back
    assert shown in back.lower()
    assert json.loads(back.partition(b"\r\n\r\n")[2])["reason"]


@pytest.mark.parametrize("origin", ["http://localhost", "https://localhost", "https://app.example.com"])
def test_pages_of_this_port_and_those_that_are_allowed_may_connect(port, origin):
    with Client(port, subprotocol="mqtt", Origin=origin) as client:
        assert client.status.startswith("HTTP/1.1 101")


def test_request_without_host_is_refused(port):
    back = answer(port, request(subprotocol="mqtt", Host=None) + CONNECT)

    assert back.startswith(b"HTTP/1.1 400 Bad Request")


# 3.1.1 §3.1: as CONNECT, of the user "proxied" with the password "x".
PROXIED = bytes.fromhex("1019 0004 4d515454 04 c2 003c 0001 70 0007 70726f78696564 0001 78")
REFUSED = b"\x20\x02\0\x05"


@pytest.mark.parametrize("host, of_this_machine_alone", [
    ("localhost", CONNACK), ("127.0.0.1:15672", CONNACK), (socket.gethostname(), CONNACK),
    ("evil.example", REFUSED), ("evil.example:15672", REFUSED), ("localhost.evil.example", REFUSED),
])
def test_user_of_this_machine_alone_comes_by_no_name_of_another(broker, port, host, of_this_machine_alone):
    """A page of a name that leads here is none of another site; a proxy may be asked by any name."""
    requests.put(
        f"{broker.http_url}/api/users/proxied", json={"password": "x", "tags": ""}, auth=("guest", "guest"),
        timeout=in_time(60)).raise_for_status()
    requests.put(
        f"{broker.http_url}/api/permissions/%2F/proxied", json={"configure": "", "write": "", "read": ""},
        auth=("guest", "guest"), timeout=in_time(60)).raise_for_status()

    for octets, answered in (CONNECT, of_this_machine_alone), (PROXIED, CONNACK):
        with Client(port, subprotocol="mqtt", Host=host, Origin=f"http://{host}") as client:
            client.send(octets)
            assert client.next_payload(4) == answered


@pytest.mark.parametrize("host, is_let_in", [("localhost", True), ("evil.example", False)])
def test_amqp_user_of_this_machine_alone_comes_by_no_name_of_another(port, host, is_let_in):
    """connection.tune, or the end."""
    with Client(port, subprotocol="amqp", Host=host) as client:
        client.send(AMQP_HEADER)
        start = client.next_frame()[1]
        assert start.startswith(AMQP_START) and start.endswith(b"\xce")
        body = b"\0\x0a\0\x0b\0\0\0\0\x05PLAIN\0\0\0\x0c\0guest\0guest\x05en_US"
        client.send(b"\x01\0\0" + len(body).to_bytes(4, "big") + body + b"\xce")

        opcode, payload = client.next_frame()
        assert (opcode, payload[7:11]) == ((BINARY, b"\0\x0a\0\x1e") if is_let_in else (CLOSE, b""))


def test_extensions_are_not_agreed_on(port):
    with Client(port, subprotocol="mqtt", Sec_WebSocket_Extensions="permessage-deflate") as client:
        assert client.status.startswith("HTTP/1.1 101")
        assert "sec-websocket-extensions" not in client.fields


def test_other_upgrades_are_passed_over(port):
    back = answer(
        port, b"GET /api/auth HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, close\r\n\r\n"
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert not back.startswith(b"HTTP/1.1 101")


def test_websocket_by_http_1_0_is_refused(port):
    back = answer(port, request(subprotocol="mqtt").replace(b"HTTP/1.1", b"HTTP/1.0"))

    assert back.startswith(b"HTTP/1.1 400") or back.startswith(b"HTTP/1.0 400")


def test_key_of_the_rfc_has_its_answer(port):
    with socket.create_connection(("127.0.0.1", port), timeout=in_time(60)) as connection:
        connection.sendall(request(subprotocol="mqtt", key=KEY))
        assert ACCEPT in connection.recv(65536)


@pytest.mark.parametrize("protocol", ["amqp", "mqtt"])
def test_protocol_that_is_off_is_refused(tmp_path, protocol):
    with Broker(tmp_path, http_port=0, **{f"{protocol}_websocket": False}) as broker:
        back = answer(broker.addresses["http"][1], request(subprotocol=protocol))

    assert back.startswith(b"HTTP/1.1 403 Forbidden") and b"websocket is off" in back


def test_metrics_and_control_have_no_websockets(tmp_path):
    path = tmp_path / "control.sock"
    with Broker(tmp_path / "data", http_port=0, metrics_http_port=0, control_unix_path=str(path)) as broker:
        back = answer(broker.addresses["metrics"][1], request("/mqtt").replace(b"Upgrade\r", b"close\r"))
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(path))
            control.sendall(request("/mqtt").replace(b"Upgrade\r", b"close\r"))
            assert b" 101 " not in control.recv(65536)

    assert back.startswith(b"HTTP/1.1 404")


def test_socket_has_the_options_of_one_that_a_listener_accepted(tmp_path):
    """A client that vanishes without a word is found by the system, and small answers do not wait."""
    names = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
    ]

    def options(launcher):
        (client,) = launcher.hub.clients
        with socket.socket(fileno=os.dup(client.socket.fileno())) as found:
            return [found.getsockopt(*name) for name in names]

    with (
        Broker(tmp_path, http_port=0, tcp_nodelay=True, tcp_keepalive=Keepalive(77, 5, 4)) as broker,
        Client(broker.addresses["http"][1], subprotocol="mqtt") as client,
    ):
        client.send(CONNECT)
        assert client.next_payload(4) == CONNACK

        assert broker.call(options) == [1, 1, 77, 4]


# what they count against

def test_limits_are_those_of_the_protocol_and_not_of_http(tmp_path):
    with Broker(
        tmp_path, http_port=0, http_max_connections=2, http_max_connections_per_address=2, mqtt_port=0,
        mqtt_max_connections_per_address=3,
    ) as broker:
        port = broker.addresses["http"][1]
        clients = []
        for _ in range(3):
            clients.append(Client(port, subprotocol="mqtt"))
            clients[-1].send(CONNECT.replace(b"\x01p", b"\x01%d" % len(clients)))
            assert clients[-1].next_payload(4) == CONNACK
        assert requests.get(
            f"{broker.http_url}/api/overview", auth=("guest", "guest"), timeout=in_time(60)
        ).status_code == 200
        with Client(port, subprotocol="mqtt") as one_more:
            assert one_more.closed() == 1000
        with Client(port, subprotocol="amqp") as other:
            other.send(AMQP_HEADER)
            assert other.next_frame()[1][:3] == AMQP_START
        for client in clients:
            client.socket.close()
        wait_until(lambda: not count(broker))


def test_client_that_says_nothing_ends_by_the_protocols_login_timeout(tmp_path):
    with (
        Broker(tmp_path, http_port=0, mqtt_login_timeout=1, http_request_timeout=3600) as broker,
        Client(broker.addresses["http"][1], subprotocol="mqtt") as client,
    ):
        client.send(b"", opcode=PING)
        assert client.next_frame() == (PONG, b"")
        assert client.closed() == 1000


def test_stopping_broker_says_that_it_goes_away(tmp_path):
    with Broker(tmp_path, http_port=0) as broker:
        with Client(broker.addresses["http"][1], subprotocol="mqtt") as client:
            client.send(CONNECT)
            assert client.next_payload(4) == CONNACK
            stopping = threading.Thread(target=broker.close)
            stopping.start()
            assert client.closed() == 1001
            stopping.join(in_time(60))


def test_client_that_vanishes_leaves_nothing(broker, port):
    client = Client(port, subprotocol="mqtt")
    client.send(CONNECT)
    assert client.next_payload(4) == CONNACK
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()

    wait_until(lambda: not count(broker))
    assert broker.call(lambda launcher: len(launcher.hub.clients)) == 0


def test_websocket_over_the_management_apis_unix_socket(tmp_path):
    path = str(tmp_path / "http.sock")

    with Broker(tmp_path / "data", http_port=0, http_unix_path=path):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(in_time(60))
            connection.connect(path)
            connection.sendall(request(subprotocol="mqtt") + frame(CONNECT))
            back = b""
            while not back.endswith(CONNACK):
                back += connection.recv(65536)
