"""A broker in another program as the node of a cluster: it cannot begin anew as a follower, and stops."""
import pytest

import gomq_py
from gomq_py.cluster.core.records import InSyncRecord
from gomq_py.config import settings
from tests.support.elected import ELECTION_S, SECRET
from tests.support.ports import reserve
from tests.support.waiting import wait_until


@pytest.fixture
def broker(etcd, monkeypatch):
    monkeypatch.setattr(settings, "HAS_ELECTIONS", True)
    port = reserve()
    with gomq_py.Broker(
            clustering=True, cluster_password=SECRET, clustering_port=port, lease_ttl=2,
            advertised_uri=f"127.0.0.1:{port}", etcd_endpoints=(etcd.endpoint,)) as broker:
        yield broker


def leads(broker):
    return broker.call(lambda launcher: launcher.broker is not None and bool(launcher.amqp))


def test_embedded_node_leads_and_stops_when_it_is_deposed(broker, etcd):
    wait_until(lambda: "cluster" in broker.addresses, ELECTION_S)
    assert leads(broker)

    etcd.put(b"gomq/isr", InSyncRecord(7, {"e" * 32: 7}).encode())

    wait_until(lambda: not broker.addresses, ELECTION_S)
    with pytest.raises(RuntimeError):
        broker.call(lambda launcher: None)


def test_embedded_node_is_not_promoted_by_hand(broker):
    with pytest.raises(RuntimeError, match="elect their leader"):
        broker.promote()
