"""Clients of a follower are served by the leader: real clients, through the follower's listeners."""
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

from gomq_py.cluster.membership import Membership
from gomq_py.config.settings import Settings
from gomq_py.hub.threads import in_thread
from gomq_py.node import Node
from tests.support import certificates
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
            leads = {"cluster_tls_cert": str(cluster_tls.certificate), "cluster_tls_key": str(cluster_tls.key)}
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
    monkeypatch.setattr(Membership, "forwards", True)


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
