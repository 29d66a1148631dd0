"""A whole leader under load and a follower over loopback: the follower's folder becomes, and stays, the
leader's, byte for byte when nothing happens.
"""
import os

import gevent
import pytest
from gevent import socket, ssl
from gevent.server import StreamServer

from gomq_py.amqp.wire.methods import BasicGet, BasicGetOk, ChannelOpen, ChannelOpenOk
from gomq_py.cluster import identity
from gomq_py.cluster.follower import STREAMING, Follower
from gomq_py.cluster.leader import Leader
from gomq_py.cluster.stream import EventStream
from gomq_py.config.settings import Settings
from gomq_py.errors import ClusterError
from gomq_py.net.tls import Contexts, Handshaker, TLSOptions, server_context
from gomq_py.node import Node
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support import certificates
from tests.support.door import Client
from tests.support.mirror import differing
from tests.support.mixed_load import MixedLoad
from tests.support.relay import pump
from tests.support.waiting import wait_until

SECRET = b"a secret of sixteen octets"


class LeadingNode:
    """A broker whose changes a cluster's leader streams, and what keeps it busy."""

    def __init__(self, root, port=0, certificate=None, acknowledger=None):
        self.root = os.fspath(root)
        self.stream = EventStream(self.root)
        settings = Settings.checked(
            data_dir=self.root, amqp_bind="127.0.0.1", amqp_port=0, http_port=-1, metrics_http_port=-1,
            mqtt_port=-1, control_unix_path="", segment_size=65536)
        self.node = Node(settings, (self.stream,))
        self.node.lead()
        if acknowledger is not None:
            self.node.durability.add(acknowledger)
        self.node.open_doors()
        mine = identity.of_leader(PlainFiles(), self.root)
        self.leader = Leader(
            SECRET, mine.cluster_id, mine.epoch, self.stream, self.node._files.register,
            self.root, "127.0.0.1", port, certificate and self._handshaker(certificate),
            acknowledger=acknowledger)
        self.leader.open()
        load = MixedLoad(self.client)
        self.begin_load, self.end_load, self.load_for = load.begin, load.end, load.go_on_for

    def _handshaker(self, certificate):
        options = TLSOptions(certificate.certificate, certificate.key)
        return Handshaker(Contexts(server_context(options)), 5, self.node.hub.slow_turns)

    def client(self):
        (listener,) = self.node.listeners
        client = Client(socket.create_connection(("127.0.0.1", listener.port)))
        client.log_in()
        client.call(ChannelOpen(), ChannelOpenOk)
        return client

    def close(self):
        self.end_load()
        self.leader.close()
        self.node.close()


def follower_of(port, root, secret=SECRET, tls=None, files=None):
    os.makedirs(root, exist_ok=True)
    files = files or PlainFiles()
    file = identity.IdentityFile(files, os.fspath(root), identity.of_follower(files, root))
    return Follower(files, os.fspath(root), secret, "127.0.0.1", port, "follower", file, tls)


def wait(condition, **options):
    return wait_until(condition, sleep=gevent.sleep, **options)


def check_equal(leading, follower, root):
    """What is there when nothing happens is the same."""
    leading.end_load()
    leading.node.durability.wait()
    wait(
        lambda: follower.status.state == STREAMING and follower.status.flushed == leading.stream.position
        and not differing(leading.root, root),
        what=lambda: f"{follower.status}, {leading.stream.position}: {differing(leading.root, root)[:10]}")


@pytest.fixture
def leading(tmp_path):
    node = LeadingNode(tmp_path / "leader")
    yield node
    node.close()


@pytest.fixture
def start(tmp_path):
    """A function that starts followers; all are stopped at the end."""
    started = []

    def start_follower(port, root, **options):
        started.append(follower_of(port, root, **options))
        started[-1].start()
        return started[-1]

    yield start_follower
    for follower in started:
        follower.stop()


def test_follower_that_joins_in_the_middle_of_load_becomes_equal(leading, start, tmp_path):
    leading.begin_load()
    leading.load_for(turns=30)

    follower = start(leading.leader.port, tmp_path / "follower")
    wait(lambda: follower.status.state == STREAMING, what=lambda: follower.status)
    leading.load_for(turns=60)

    check_equal(leading, follower, tmp_path / "follower")
    figures, = wait(lambda: [one for one in leading.leader.followers if not one.lag_octets])
    assert (figures.name, figures.state) == ("follower", "streaming")


def test_two_followers_join_at_once(leading, start, tmp_path):
    leading.begin_load()
    leading.load_for(turns=10)

    followers = [start(leading.leader.port, tmp_path / name) for name in ("one", "two")]
    leading.load_for(turns=30)

    for name, follower in zip(("one", "two"), followers, strict=True):
        check_equal(leading, follower, tmp_path / name)


def test_follower_whose_connection_is_cut_goes_on_without_a_sync(leading, start, tmp_path, caplog):
    caplog.set_level("INFO", "gomq_py.cluster")
    follower = start(leading.leader.port, tmp_path / "follower")
    wait(lambda: follower.status.state == STREAMING)
    leading.begin_load()
    for _ in range(5):
        leading.load_for(turns=10)
        link, = wait(lambda: leading.leader.links)
        link.end(OSError("cut by the test"))
        wait(lambda: link not in leading.leader.links)

    check_equal(leading, follower, tmp_path / "follower")
    assert caplog.text.count("with a sync") == 1
    assert caplog.text.count("from position") == 5


def test_follower_without_history_syncs_anew(leading, start, tmp_path, caplog):
    caplog.set_level("INFO", "gomq_py.cluster")
    leading.stream.kept_most = 200_000
    follower = start(leading.leader.port, tmp_path / "follower")
    wait(lambda: follower.status.state == STREAMING)
    leading.begin_load()
    leading.load_for(turns=5)
    for link in leading.leader.links:
        link.end(OSError("cut by the test"))
    leading.load_for(turns=30)
    leading.stream.kept_most = 64 << 20

    check_equal(leading, follower, tmp_path / "follower")
    assert caplog.text.count("with a sync") > 1


def test_follower_that_was_restarted_becomes_equal(leading, start, tmp_path):
    first = start(leading.leader.port, tmp_path / "follower")
    leading.begin_load()
    wait(lambda: first.status.state == STREAMING)
    leading.load_for(turns=20)
    first.stop()
    leading.load_for(turns=20)

    second = start(leading.leader.port, tmp_path / "follower")

    check_equal(leading, second, tmp_path / "follower")


def test_leader_that_was_restarted_is_followed_again(leading, start, tmp_path):
    follower = start(leading.leader.port, tmp_path / "follower")
    leading.begin_load()
    wait(lambda: follower.status.state == STREAMING)
    leading.load_for(turns=20)
    port = leading.leader.port
    leading.close()

    again = LeadingNode(leading.root, port)
    try:
        again.begin_load()
        again.load_for(turns=10)
        check_equal(again, follower, tmp_path / "follower")
    finally:
        again.close()


def test_stopped_follower_is_promoted_with_what_was_confirmed(leading, start, tmp_path):
    follower = start(leading.leader.port, tmp_path / "follower")
    leading.begin_load()
    wait(lambda: follower.status.state == STREAMING)
    leading.load_for(turns=20)
    check_equal(leading, follower, tmp_path / "follower")
    count = leading.node.broker.vhosts["/"].queues["q"].ready_count
    follower.stop()
    leading.close()

    promoted = LeadingNode(tmp_path / "follower")
    try:
        assert promoted.node.broker.vhosts["/"].queues["q"].ready_count == count > 0
        client = promoted.client()
        client.send_method(BasicGet(queue="q", no_ack=True))
        client.expect_message(BasicGetOk)
        client.close()
    finally:
        promoted.close()


def test_follower_over_tls_becomes_equal(start, tmp_path):
    certificate = certificates.make(tmp_path / "tls", "127.0.0.1")
    leading = LeadingNode(tmp_path / "leader", certificate=certificate)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # gevent's: create_default_context() makes others
    trusting.load_verify_locations(certificate.authority)
    try:
        leading.begin_load()
        leading.load_for(turns=10)
        follower = start(leading.leader.port, tmp_path / "follower", tls=trusting)
        wait(lambda: follower.status.state == STREAMING, what=lambda: follower.status)
        leading.load_for(turns=20)
        for link in leading.leader.links:
            link.end(OSError("cut by the test"))
        leading.load_for(turns=20)

        check_equal(leading, follower, tmp_path / "follower")
    finally:
        leading.close()


def test_wrong_secret_is_refused_and_shown(leading, start, tmp_path):
    follower = start(leading.leader.port, tmp_path / "follower", secret=b"another secret, as long")

    wait(lambda: "another secret" in follower.status.error, what=lambda: follower.status)

    assert leading.leader.followers == []
    assert follower.status.flushed == 0


def test_folder_of_another_cluster_is_refused(leading, start, tmp_path):
    other = LeadingNode(tmp_path / "other")
    other.close()

    follower = start(leading.leader.port, tmp_path / "other")

    wait(lambda: "belongs to" in follower.status.error, what=lambda: follower.status)
    assert leading.leader.followers == []


def test_folder_of_no_cluster_does_not_follow(tmp_path):
    (tmp_path / "letters.txt").write_text("mine")

    with pytest.raises(ClusterError):
        follower_of(1, tmp_path)


def test_damaged_octets_cost_the_connection_and_nothing_else(leading, start, tmp_path, caplog):
    """A relay between the two flips a bit after every MiB that the leader sends."""
    relay = StreamServer(("127.0.0.1", 0), lambda client, _: damage(client, leading.leader.port))
    relay.start()
    follower = start(relay.server_port, tmp_path / "follower")
    wait(lambda: follower.status.state == STREAMING)
    leading.begin_load()
    wait(lambda: caplog.text.count("checksum") >= 3, what=lambda: follower.status)
    leading.end_load()
    relay.close()
    follower.stop()

    check_equal(leading, start(leading.leader.port, tmp_path / "follower"), tmp_path / "follower")


def damage(client, port):
    with socket.create_connection(("127.0.0.1", port)) as leader:
        back = gevent.spawn(pump, client, leader)
        passed = 0
        while octets := bytearray(leader.recv(65536)):
            if (passed + len(octets)) >> 20 > passed >> 20:
                octets[-1] ^= 1
            passed += len(octets)
            try:
                client.sendall(octets)
            except OSError:
                break
        back.kill()
