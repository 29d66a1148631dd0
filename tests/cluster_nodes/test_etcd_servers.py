"""Three nodes beside an etcd of three servers, with a login: servers die or hang one after the other."""
import pytest

from tests.cluster_nodes.test_failover import check
from tests.support.elected import Client, Cluster
from tests.support.etcd_process import cluster as etcd_cluster
from tests.support.etcd_process import with_logins

LOGIN = {"GOMQ_CLUSTERING_ETCD_USER": "gomq", "GOMQ_CLUSTERING_ETCD_PASSWORD": "pw"}

pytestmark = pytest.mark.needs_program("etcd")


@pytest.fixture
def servers(tmp_path):
    """Three servers of one etcd."""
    with etcd_cluster(tmp_path) as servers:
        with_logins(servers[0])
        yield servers


def test_each_server_of_etcd_may_be_away(servers, tmp_path):
    """One is killed or stopped at a time; publishers are never refused for long, and nothing is lost."""
    endpoints = ",".join(server.endpoint for server in servers)
    with Cluster(tmp_path, endpoints, environment=LOGIN) as cluster:
        cluster.wait_in_sync(3)
        client = Client(cluster).connect()
        for server in servers:
            server.kill()
            client.publish(30)
            server.start()
            server.wait_until_ready()
            client.publish(30)
            server.stop()
            client.publish(30)
            server.go_on()

        cluster.wait_in_sync(3)
        check(client)
        assert not any("pw" in line for node in cluster.nodes for line in node.log_text.split())
