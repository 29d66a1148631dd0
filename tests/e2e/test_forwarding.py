"""Clients of a follower are served by the leader: real clients, through the follower's listeners."""
import base64
import json
import ssl
import urllib.error
import urllib.request

import gevent
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from gevent import socket

from gomq_py.cluster.forwarding import Forwarder
from gomq_py.cluster.login import ForwarderLogin
from gomq_py.cluster.membership import Membership, address_of, follower_context
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.config.settings import Settings
from gomq_py.hub.threads import in_thread
from gomq_py.net.proxy_protocol import header_of
from gomq_py.node import Node
from tests.support import certificates
from tests.support.door import Client
from tests.support.waiting import in_time, wait_until

SECRET = "a secret of sixteen octets"
PORTS = {
    "amqp_port": 0, "mqtt_port": 0, "http_port": 0, "metrics_http_port": -1, "control_unix_path": "",
    "amqp_bind": "127.0.0.1", "mqtt_bind": "127.0.0.1", "http_bind": "127.0.0.1",
}


def wait(condition, **options):
    return wait_until(condition, sleep=gevent.sleep, **options)


class Pair:
    """A leader and a follower that passes its clients on."""

    def __init__(self, folder, tls=None, cluster_tls=None, **options):
        settings = {"cluster_password": SECRET, **PORTS, **options}
        if tls is not None:
            settings |= {"tls_cert": str(tls.certificate), "tls_key": str(tls.key), "amqps_port": 0,
                         "mqtts_port": 0, "https_port": 0}
        leads, follows = {}, {}
        if cluster_tls is not None:
            leads = {
                "cluster_tls_cert": str(cluster_tls.certificate), "cluster_tls_key": str(cluster_tls.key)}
            follows = {"cluster_tls_ca_cert": str(cluster_tls.authority)}
        self.leader = Node(Settings.checked(
            data_dir=str(folder / "leader"), cluster=True, clustering_port=0,
            default_user_only_loopback=False, **settings, **leads))
        self.leader.lead()
        self.leader.open_doors()
        port = self.port("cluster", self.leader)
        self.follower = Node(Settings.checked(
            data_dir=str(folder / "follower"), cluster_leader=f"localhost:{port}", **settings, **follows))
        self.follower.must_follow()
        self.follower.follow()
        self.follower.open_follower_doors(lambda: None)

    def port(self, protocol, node=None):
        return next(
            one.port for one in (node or self.follower).listeners if one.protocol == protocol and one.port)

    def peers(self):
        """Hosts of the leader's clients."""
        return {client.peer_host for client in self.leader.hub.clients}

    def close(self):
        self.follower.close()
        self.leader.close()


@pytest.fixture(autouse=True)
def forwards(monkeypatch):
    """A warm copy passes clients on, as the follower of an elected leader does."""
    def forwarder(membership, hub):
        follower, settings = membership._follower, membership._settings
        return Forwarder(
            hub, SECRET.encode(), socket.gethostname(), lambda: address_of(settings.cluster_leader),
            lambda: follower.identity, follower_context(settings))

    monkeypatch.setattr(Membership, "forwarder", forwarder)
    # A busy machine is slow; no client here gives way for it.
    monkeypatch.setattr("gomq_py.cluster.forwarding.WAIT_S", in_time(20))
    monkeypatch.setattr("gomq_py.hub.admission.PATIENCE_S", in_time(60))


@pytest.fixture
def made(tmp_path):
    pairs = []

    def make(**options):
        pairs.append(Pair(tmp_path, **options))
        return pairs[-1]
    yield make
    for pair in pairs:
        pair.close()


@pytest.fixture(params=["plain", "cluster over TLS"])
def pair(request, made, tmp_path):
    tls = certificates.make(tmp_path / "cluster") if request.param != "plain" else None
    return made(cluster_tls=tls)


def pika_round(port, context=None):
    """Publish with confirms and get it back."""
    options = {} if context is None else {"ssl_options": pika.SSLOptions(context, "localhost")}
    with pika.BlockingConnection(pika.ConnectionParameters(
            "localhost", port, blocked_connection_timeout=in_time(20), **options)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for body in (b"", b"short", b"x" * 1_000_000):
            channel.basic_publish("", "q", body, mandatory=True)
            assert channel.basic_get("q", auto_ack=True)[2] == body


def test_amqp_client_of_a_follower_is_served_by_the_leader(pair):
    in_thread(pika_round, pair.port("amqp"))


def mqtt_round(port, context=None):
    """Publish at QoS 2 and receive it."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "c", protocol=paho.MQTTv5)
    client.username_pw_set("guest", "guest")
    if context is not None:
        client.tls_set_context(context)
    received = []
    client.on_message = lambda _client, _data, message: received.append(message.payload)
    subscribed = []
    client.on_subscribe = lambda *_: subscribed.append(True)
    client.connect("localhost", port)
    client.loop_start()
    try:
        client.subscribe("t", 2)
        wait_until(lambda: subscribed)
        client.publish("t", b"x" * 100_000, 2).wait_for_publish(in_time(20))
        wait_until(lambda: received)
        assert received == [b"x" * 100_000]
    finally:
        client.disconnect()
        client.loop_stop()


def http(port, path, context=None, user="guest"):
    """(status, JSON) of a GET."""
    request = urllib.request.Request(f"{'https' if context else 'http'}://localhost:{port}{path}")
    if user:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{user}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=in_time(20), context=context) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def trusting(files):
    return ssl.create_default_context(cafile=str(files.authority))


def test_mqtt_client_of_a_follower_is_served_by_the_leader(pair):
    in_thread(mqtt_round, pair.port("mqtt"))


def test_tls_of_clients_ends_at_the_leader(made, tmp_path):
    files = certificates.make(tmp_path / "clients")
    pair = made(tls=files)

    in_thread(pika_round, pair.port("amqps"), trusting(files))
    in_thread(mqtt_round, pair.port("mqtts"), trusting(files))
    assert in_thread(http, pair.port("https"), "/api/overview", trusting(files))[0] == 200


def test_tls_of_clients_passes_inside_the_clusters_tls(made, tmp_path):
    files = certificates.make(tmp_path / "clients")
    pair = made(tls=files, cluster_tls=certificates.make(tmp_path / "cluster"))

    in_thread(pika_round, pair.port("amqps"), trusting(files))


def test_http_client_of_a_follower_is_served_by_the_leader(pair):
    status, overview = in_thread(http, pair.port("http"), "/api/overview")

    assert status == 200 and overview["object_totals"]["connections"] == 0
    assert in_thread(http, pair.port("http"), "/api/overview", None, "nobody")[0] == 401


@pytest.mark.parametrize("path, status", [
    ("/api/cluster", 200), ("/api/health/checks/alarms", 200),
    ("/api/health/checks/ready-to-serve-clients", 200), ("/metrics", None),
])
def test_follower_answers_for_itself(pair, path, status):
    connection = socket.create_connection(("127.0.0.1", pair.port("http")))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    with connection.makefile("rb") as answer:
        whole = answer.read()  # it closes after each answer: the next one may be the leader's

    assert b"Connection: close" in whole
    assert status is None or whole.startswith(f"HTTP/1.1 {status} ".encode())
    assert path != "/api/cluster" or b'"follower"' in whole
    assert path != "/metrics" or b"gomq_cluster_is_leader 0" in whole
    connection.close()


def test_websocket_of_a_follower_reaches_the_leader(pair):
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "w", transport="websockets")

    def connect():
        client.username_pw_set("guest", "guest")
        connected = []
        client.on_connect = lambda *_: connected.append(True)
        client.connect("localhost", pair.port("http"))
        client.loop_start()
        wait_until(lambda: connected)
        client.disconnect()
        client.loop_stop()

    in_thread(connect)


def test_client_on_the_followers_machine_is_not_on_the_leaders(made):
    """Users who may only come from this machine may not come through a follower, even one beside the leader.
    """
    pair = made()
    pair.leader.broker.users._only_local = ("guest",)

    def refused():
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika_round(pair.port("amqp"))

    in_thread(refused)
    assert in_thread(http, pair.port("http"), "/api/overview")[0] == 401
    in_thread(pika_round, pair.port("amqp", pair.leader))


def test_leader_shows_where_a_client_is(made):
    pair = made()
    connection = in_thread(pika.BlockingConnection, pika.ConnectionParameters("localhost", pair.port("amqp")))

    assert pair.peers() == {f"gomq@{socket.gethostname()}"}
    in_thread(connection.close)
    wait(lambda: not pair.follower.hub.admission.count)


def test_new_clients_wait_for_a_leader(made):
    pair = made()
    forwarder = pair.follower._forwarder
    known, forwarder._leader_address = forwarder._leader_address, lambda: None
    doing = gevent.spawn(in_thread, pika_round, pair.port("amqp"))
    wait(lambda: pair.follower.hub.admission.pending_count)

    forwarder._leader_address = known
    forwarder.leader_changed()

    doing.get()


def test_new_clients_are_closed_without_a_leader(made, monkeypatch):
    monkeypatch.setattr("gomq_py.cluster.forwarding.WAIT_S", 0.05)
    pair = made()
    pair.follower._forwarder._leader_address = lambda: None
    connection = socket.create_connection(("127.0.0.1", pair.port("amqp")))

    assert connection.recv(1) == b""
    connection.close()
    wait(lambda: not pair.follower.hub.admission.count)


def test_connections_to_a_former_leader_end(made):
    pair = made()
    connection = socket.create_connection(("127.0.0.1", pair.port("amqp")))
    connection.sendall(b"AMQP\0\0\x09\x01")
    assert connection.recv(1) == b"\1"

    pair.follower._forwarder._leader_address = lambda: ("localhost", 1)
    pair.follower._forwarder.leader_changed()

    while connection.recv(4096):
        pass
    connection.close()
    wait(lambda: not pair.leader.hub.admission.count)


def test_promotion_ends_forwarding(made):
    pair = made()
    wait(lambda: pair.follower._membership._follower.status.state == "streaming")
    in_thread(pika_round, pair.port("amqp"))
    pair.leader.close()

    pair.follower.promote()

    in_thread(pika_round, pair.port("amqp"))


def test_many_clients_come_at_once(made):
    """More than may log in at the cluster's port at a time, or wait for their login at the leader."""
    pair = made(max_pending_logins=5)
    port = pair.port("amqp")
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]

    def log_in(connection):
        connection.settimeout(in_time(20))
        client = Client(connection)
        client.log_in()
        return client

    clients = [gevent.spawn(log_in, connection) for connection in connections]
    gevent.joinall(clients, raise_error=True)
    assert len(pair.leader.hub.clients) == 60
    for client in clients:
        client.value.close()


def test_clients_are_limited_by_their_address_at_the_follower(made):
    pair = made(max_connections_per_address=1)
    first = socket.create_connection(("127.0.0.1", pair.port("amqp")))
    wait(lambda: pair.follower.hub.admission.count)
    second = socket.create_connection(("127.0.0.1", pair.port("amqp")))

    assert second.recv(1) == b""
    first.close()
    second.close()


def test_silent_http_clients_give_way_at_the_follower(made, monkeypatch):
    monkeypatch.setattr("gomq_py.http.clients.PATIENCE_S", 0.05)
    pair = made(http_max_connections=2)
    silent = [socket.create_connection(("127.0.0.1", pair.port("http"))) for _ in range(2)]

    assert in_thread(http, pair.port("http"), "/api/overview")[0] == 200
    for connection in silent:
        connection.close()


def test_strangers_pass_nobody_on(made):
    """With another secret, before the proof, and behind it: the leader serves no client of theirs."""
    pair = made()
    pair.follower._forwarder.secret = b"another secret of the wrong node"
    monitor = socket.create_connection(("127.0.0.1", pair.port("cluster", pair.leader)))
    login = ForwarderLogin(
        b"another secret of the wrong node", b"n" * 16, NO_ID, 0, "x", "amqp", header_of("", ""))
    monitor.sendall(login.hello() + b"AMQP\0\0\x09\x01")

    octets = b""
    while part := monitor.recv(4096):
        octets += part

    assert b"AMQP" not in octets and not pair.leader.hub.admission.count
    monitor.close()
    connection = socket.create_connection(("127.0.0.1", pair.port("amqp")))
    wait(lambda: pair.follower.hub.admission.pending_count)
    assert not pair.leader.hub.admission.count
    connection.close()
