"""A broker in another program as the node of a cluster: it cannot begin anew as a follower, and stops."""
import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

import gomq_py
from gomq_py.cluster.core.records import InSyncRecord
from gomq_py.cluster.leader import Leader
from gomq_py.launcher import BootError
from gomq_py.net.listener import BindError
from tests.support.elected import ELECTION_S, SECRET
from tests.support.ports import reserve
from tests.support.waiting import wait_until


def node(etcd, port):
    return gomq_py.Broker(
        clustering=True, cluster_password=SECRET, clustering_port=port, lease_ttl=2,
        advertised_uri=f"127.0.0.1:{port}", etcd_endpoints=(etcd.endpoint,))


@pytest.fixture
def broker(etcd):
    with node(etcd, reserve()) as broker:
        yield broker


def leads(broker):
    return broker.call(lambda launcher: launcher.broker is not None and bool(launcher.amqp))


def test_embedded_node_leads_and_stops_when_it_is_deposed(broker, etcd):
    wait_until(lambda: "cluster" in broker.addresses, ELECTION_S)
    assert leads(broker)

    etcd.put(b"gomq/isr", InSyncRecord(7, {"e" * 32: 7}).encode())

    wait_until(lambda: not broker.addresses, ELECTION_S)
    with pytest.raises(RuntimeError) as caught:
        broker.call(lambda launcher: None)
    assert "leads its cluster no more" in str(caught.value.__cause__)


def test_owner_hears_that_the_elected_broker_could_not_lead(etcd, monkeypatch):
    """Its port for followers is taken after its start."""
    def fail(leader):
        raise BindError("port 5679 is in use")

    monkeypatch.setattr(Leader, "open", fail)
    broker = node(etcd, reserve())
    with ThreadPoolExecutor() as pool, contextlib.closing(broker):
        serving = pool.submit(broker.serve_forever)

        with pytest.raises(BootError, match="cannot become the leader"):
            serving.result(ELECTION_S)


def test_embedded_node_is_not_promoted_by_hand(broker):
    with pytest.raises(RuntimeError, match="elect their leader"):
        broker.promote()
