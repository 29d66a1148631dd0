"""Clients that connect to a follower of an elected cluster, while all is well and without a leader."""
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest

from tests.support.elected import FAULTS, Cluster
from tests.support.waiting import in_time


@pytest.fixture
def cluster(tmp_path, etcd):
    with Cluster(tmp_path, etcd, default_user_only_loopback="false") as cluster:
        yield cluster


def publish(node, body):
    """Connect, once, and publish with a confirm. Returns whether that went well."""
    parameters = pika.URLParameters(node.amqp_url)
    parameters.socket_timeout = parameters.stack_timeout = in_time(20)
    try:
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
    except FAULTS:
        return False
    return True


def test_clients_of_all_nodes_share_one_queue_and_wait_for_a_new_leader(cluster):
    leader = cluster.wait_in_sync(3)
    for number, node in enumerate(cluster.nodes):
        assert publish(node, str(number).encode())

    leader.kill()
    others = [node for node in cluster.nodes if node is not leader]
    with ThreadPoolExecutor() as pool:
        served = list(pool.map(lambda node: publish(node, b"waited"), others))

    # the one that is elected begins anew with its listeners, and closes those who waited there
    assert any(served)
    with pika.BlockingConnection(pika.URLParameters(cluster.leader(but=leader).amqp_url)) as connection:
        channel = connection.channel()
        bodies = []
        while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
            bodies.append(got[2])
    assert bodies[:3] == [b"0", b"1", b"2"] and bodies[3:] == [b"waited"] * len(bodies[3:]) != []
