"""Three nodes and a real etcd: one is elected, another one takes over, and nothing that was confirmed is lost."""
import pytest

from tests.support.elected import Client, Cluster
from tests.support.etcd_process import EtcdProcess


@pytest.fixture
def etcd(tmp_path):
    with EtcdProcess(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def cluster(tmp_path, etcd):
    with Cluster(tmp_path, etcd) as cluster:
        yield cluster


def test_killed_leader_is_replaced_and_readmitted_without_a_loss(cluster):
    first = cluster.wait_in_sync(3)
    client = Client(cluster).connect()
    client.publish(200)

    first.kill()
    client.publish(200)
    second = cluster.leader(but=first)
    first.spawn()
    cluster.wait_in_sync(3)
    client.publish(50)
    second.kill()
    client.publish(50)

    numbers = client.take_all()
    assert set(numbers) >= set(client.confirmed)
    assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
    client.close()
