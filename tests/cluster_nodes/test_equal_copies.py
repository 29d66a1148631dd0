"""Three nodes after a load by every door and the loss of a leader: their folders are the same, byte for byte.
"""
import contextlib

import gevent
import pytest
import requests
from gevent import socket

from gomq_py.amqp.wire.methods import ChannelOpen, ChannelOpenOk
from gomq_py.client.mqtt import MQTTClient
from gomq_py.mqtt.wire.packets import Subscription
from tests.support.door import Client
from tests.support.elected import ELECTION_S, Cluster, ElectedNode
from tests.support.mirror import differing
from tests.support.mixed_load import MixedLoad
from tests.support.ports import reserve
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

LOGIN = ("guest", "guest")
TURNS = 40


class MQTTNode(ElectedNode):
    """With a door for MQTT."""

    def __init__(self, *arguments, **options):
        self.mqtt_port = reserve()
        super().__init__(*arguments, mqtt_port=self.mqtt_port, **options)

    def client(self):
        """An AMQP client of this node, with a channel."""
        client = Client(socket.create_connection(("127.0.0.1", self._options["port"])))
        client.log_in()
        client.call(ChannelOpen(), ChannelOpenOk)
        return client

    def ask(self, verb, path, **value):
        """A request to the management API, which succeeds."""
        answer = requests.request(
            verb, f"http://127.0.0.1:{self._options['http_port']}/api/{path}", auth=LOGIN, json=value,
            timeout=in_time(20))
        assert answer.ok, answer.text
        return answer


@pytest.fixture
def cluster(tmp_path, etcd):
    with Cluster(tmp_path, etcd, kind=MQTTNode) as cluster:
        cluster.wait_in_sync(3)
        yield cluster


def wait(predicate, what):
    return wait_until(predicate, ELECTION_S, what, gevent.sleep)


def use_mqtt(node):
    """Sessions that last, with QoS 0, 1 and 2, retained messages, and what a subscriber has not taken."""
    def connect(name, clean_start=False):
        return MQTTClient(
            f"mqtt://guest:guest@127.0.0.1:{node.mqtt_port}", version=5, client_identifier=name,
            clean_start=clean_start, socket_module=socket, timeout_s=TIMEOUT_S,
            properties={"session_expiry_interval": 3600})

    with contextlib.closing(connect("publisher")) as publisher, contextlib.closing(connect("taker")) as taker:
        with contextlib.closing(connect("sleeper")) as sleeper:
            for client in (taker, sleeper):
                client.subscribe(Subscription("k/#", 2))
        for number in range(60):
            for qos in (0, 1, 2):
                publisher.publish(f"k/{qos}", b"%d" % number * 50, qos)
            publisher.publish(f"kept/{number % 7}", b"%d" % number if number % 3 else b"", 1, retain=True)
            taker.next_message(0.01)
            gevent.sleep(0)


def use_management(node):
    """Definitions of all kinds, one by one and together, a shovel, and messages that come by the API."""
    node.ask("PUT", "vhosts/other")
    node.ask("PUT", "users/somebody", password="a password", tags="monitoring")
    node.ask("PUT", "permissions/other/somebody", configure=".*", write=".*", read="")
    node.ask("PUT", "policies/%2F/short", pattern="^limited", definition={"max-length": 3})
    for name in ("limited", "moved", "arrived", "gone"):
        node.ask("PUT", f"queues/%2F/{name}", durable=True)
    node.ask("PUT", "exchanges/%2F/x", type="topic", durable=True)
    node.ask("POST", "bindings/%2F/e/x/q/limited", routing_key="a.#")
    node.ask("PUT", "parameters/shovel/%2F/mover", value={
        "src-uri": "amqp://", "src-queue": "moved", "dest-uri": "amqp://", "dest-queue": "arrived"})
    for number in range(30):
        for exchange, key in (("x", "a.b"), ("amq.default", "moved")):
            node.ask(
                "POST", f"exchanges/%2F/{exchange}/publish", routing_key=key, payload="x" * number,
                payload_encoding="string", properties={"delivery_mode": 2})
        gevent.sleep(0)
    node.ask("DELETE", "queues/%2F/gone")
    node.ask("POST", "definitions", queues=[
        {"name": f"defined.{number}", "vhost": "other", "durable": True} for number in range(20)])
    wait(lambda: node.ask("GET", "queues/%2F/arrived").json()["messages_ready"] == 30, "the shovel moves")
    node.ask("DELETE", "parameters/shovel/%2F/mover")


def put_load_on(node):
    """All doors at once, for TURNS rounds."""
    load = MixedLoad(node.client)
    load.begin()
    others = [gevent.spawn(use, node) for use in (use_mqtt, use_management)]
    load.go_on_for(TURNS)
    gevent.joinall(others, raise_error=True)
    load.end()


def check_equal(cluster):
    leader = cluster.wait_in_sync(3)
    for follower in cluster.nodes:
        wait(
            lambda follower=follower: not differing(leader.data_dir, follower.data_dir),
            lambda follower=follower: differing(leader.data_dir, follower.data_dir)[:10])


def test_folders_are_equal_after_a_load_by_every_door(cluster):
    put_load_on(cluster.leader())

    check_equal(cluster)


def test_folders_are_equal_after_the_loss_of_a_leader_amid_a_load(cluster):
    """A follower goes on at the next leader in the folder that it has, wherever both were."""
    for _ in range(2):
        lost = cluster.wait_in_sync(3)
        load = MixedLoad(lost.client)
        load.begin()
        load.go_on_for(TURNS // 2)
        lost.process.kill()
        load.give_up()
        lost.kill()
        load = MixedLoad(cluster.leader(but=lost).client)
        load.begin()
        load.go_on_for(TURNS // 4)
        lost.spawn()
        load.go_on_for(TURNS // 4)
        load.end()

        check_equal(cluster)
