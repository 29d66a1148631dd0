"""The harness of the rounds, over a leader and two followers that nobody elects, and no confirm waits for.
"""
import pytest

from tests.cluster_rounds.cluster import Cluster
from tests.cluster_rounds.nodes import Node


class FollowingNode(Node):
    """``followed``: the relay's port of the leader."""

    followed = None

    def lines(self, min_isr):
        yield "replicate = true"
        if FollowingNode.followed:
            yield f"follow = 127.0.0.1:{FollowingNode.followed}"
        else:
            FollowingNode.followed = self.relay_port


class FollowedCluster(Cluster):
    """The first node leads."""

    def make_node(self, folder, name):
        if name == "one":
            FollowingNode.followed = None
        return FollowingNode(name, folder / name, self.network, self.coordinator)

    def leader(self):
        return next((node for node in self.nodes if node.figures().get("role") == "leader"), None)

    def members(self):
        leader = self.leader()
        return {leader.name} | {
            self.node_of(bytes.fromhex(one["node"])).name for one in leader.figures()["followers"]
            if one["state"] == "streaming" and one["lag_seconds"] < 1
        } if leader else set()


@pytest.fixture
def cluster(tmp_path):
    with FollowedCluster(tmp_path) as cluster:
        yield cluster
        print("\n".join(cluster.log))


@pytest.mark.needs_program("etcd")
def test_account_of_a_cluster_without_faults_is_in_order(cluster):
    cluster.wait_progress(50)
    cluster.check()


@pytest.mark.needs_program("etcd")
def test_cut_holds_one_way_of_one_pair_until_it_is_healed(cluster):
    leader, two, three = cluster.nodes

    cluster.network.way("one", "two").cut()
    cluster.wait(lambda: "two" not in cluster.members(), "the second node lags")
    cluster.wait_progress()
    passed = cluster.network.way("one", "two").octets
    cluster.wait(lambda: "three" in cluster.members(), "the third node does not")

    assert cluster.network.way("one", "two").octets == passed
    cluster.network.heal()
    cluster.wait_whole()
    cluster.check()


@pytest.mark.needs_program("etcd")
def test_loss_of_what_was_confirmed_is_found(cluster):
    leader, two, _ = cluster.nodes
    for way in (cluster.network.way("one", "two"), cluster.network.way("one", "three")):
        way.cut()
    for consumer in cluster.consumers:
        consumer.pause()
    cluster.wait_progress(50)

    leader.kill()
    cluster.ctl(two, "promote")
    cluster.account_s = 2  # in vain

    with pytest.raises(AssertionError, match="(?s)classic: .*quorum: .*stream: confirmed and lost"):
        cluster.check()
